"""Aliases, downloads and uses of models over REST."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from phalanx.registry.registry import Registry
from phalanx.store import Store
from tests.server.logs import remember
from tests.server.site import Site

NET = "/api/v1/models/net"


@pytest.fixture(scope="module")
def models(site: Site) -> None:
    """`net` with a version of one file and one of several; `secret` of another project."""
    folder = remember(site, "maker", project="vision")
    (folder / "outputs/big/deep").mkdir(parents=True)
    (folder / "outputs/small.bin").write_bytes(b"small" * 1000)
    (folder / "outputs/big/a.bin").write_bytes(b"a" * 513)
    (folder / "outputs/big/deep/b.bin").write_bytes(b"b")
    other = remember(site, "other", project="audio", params={"init": "net/1"})
    (other / "outputs").mkdir()
    (other / "outputs/x").write_bytes(b"x")
    remember(site, "user1", project="vision", params={"init": "net/1", "lr": 0.1})
    remember(site, "user2", project="vision", params={"start": "models:/net/2"})
    with Store.open(site.home.path, site.database) as store:
        registry = Registry(site.home, store)
        registry.register("net", "maker", "outputs/small.bin")
        registry.register("net", "maker", "outputs/big")
        registry.register("secret", "other", "outputs/x")


def token(site: Site, role: str, project: str) -> str:
    name = f"{role}-{project}-models"
    known = getattr(site, "model_tokens", {})
    if name not in known:
        known[name] = site.context.tokens.create(name, role, projects=[project])
        site.model_tokens = known  # type: ignore[attr-defined]
    return str(known[name])


@pytest.mark.usefixtures("models")
def test_editors_of_its_project_move_the_aliases_of_a_model(site: Site) -> None:
    editor = token(site, "editor", "vision")
    put = site.ask("PUT", f"{NET}/aliases/champion", editor, json={"version": 2, "reason": "better on hard cases"})
    assert (put.status_code, put.json()["aliases"]) == (200, {"champion": 2})
    assert site.ask("PUT", f"{NET}/aliases/champion", editor, json={"version": 1}).json()["aliases"] == {"champion": 1}
    last = site.get(NET)["events"][-1]
    assert (last["kind"], last["version"], last["user"]) == ("alias", 1, "editor-vision-models")
    assert site.ask("DELETE", f"{NET}/aliases/champion", editor).json()["aliases"] == {}


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("who", "path", "body", "status"),
    [
        ("viewer vision", f"{NET}/aliases/champion", {"version": 1}, 403),
        ("editor audio", f"{NET}/aliases/champion", {"version": 1}, 404),  # it does not see the model
        ("editor vision", "/api/v1/models/secret/aliases/champion", {"version": 1}, 404),
        ("editor vision", f"{NET}/aliases/champion", {"version": 9}, 404),
        ("editor vision", f"{NET}/aliases/3", {"version": 1}, 409),  # looks like a version
        ("editor vision", f"{NET}/aliases/a%0Ab", {"version": 1}, 409),
        ("editor vision", f"{NET}/aliases/champion", {"version": "1"}, 400),
        ("editor vision", f"{NET}/aliases/champion", {}, 400),
    ],
)
def test_others_may_not(site: Site, who: str, path: str, body: Any, status: int) -> None:
    answer = site.ask("PUT", path, token(site, *who.split()), json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]
    assert site.get(NET)["aliases"] == {}


@pytest.mark.usefixtures("models")
def test_a_version_is_downloaded_as_its_file_or_as_an_archive(site: Site) -> None:
    one = site.ask("GET", f"{NET}/versions/1/download")
    assert one.content == b"small" * 1000
    assert one.headers["content-disposition"] == "attachment; filename*=UTF-8''small.bin"
    assert one.headers["content-security-policy"].startswith("sandbox")
    several = site.ask("GET", f"{NET}/versions/2/download")
    assert several.headers["content-disposition"] == "attachment; filename*=UTF-8''net-2.tar"
    with tarfile.open(fileobj=io.BytesIO(several.content)) as archive:
        found = {item.name: archive.extractfile(item).read() for item in archive}  # type: ignore[union-attr]
    assert found == {"a.bin": b"a" * 513, "deep/b.bin": b"b"}
    for path in (f"{NET}/versions/9/download", "/api/v1/models/nobody/versions/1/download"):
        assert site.ask("GET", path).status_code == 404
    stranger = token(site, "viewer", "audio")
    assert site.ask("GET", f"{NET}/versions/1/download", stranger).status_code == 404


@pytest.mark.usefixtures("models")
def test_runs_whose_params_name_a_version_use_it(site: Site) -> None:
    uses = site.get(f"{NET}/uses")["uses"]
    assert {(use["run"], use["version"], use["param"]) for use in uses} == {
        ("user1", 1, "init"),
        ("user2", 2, "start"),
        ("other", 1, "init"),
    }
    seen = site.ask("GET", f"{NET}/uses", token(site, "viewer", "vision")).json()["uses"]
    assert {use["run"] for use in seen} == {"user1", "user2"}
