"""Files of model versions: they outlive the run that made them."""

from __future__ import annotations

from pathlib import Path

import pytest

import phalanx
from phalanx.errors import CallError
from phalanx.registry.registry import Registry
from phalanx.store import Store
from tests.server.site import Site, artifact

FILES = {"model/MLmodel": b"flavors", "model/data/w.bin": b"weights" * 1000}


@pytest.fixture(scope="module", name="versions")
def registered_versions(site: Site) -> dict[str, str]:
    """A folder and a single file as versions of one model, and the run that made them."""
    made = site.post("/api/v1/runs", {"project": "vision"}, 201)["id"]
    for path, content in FILES.items():
        assert site.ask("PUT", artifact(made, path), content=content).status_code == 200
    with Store.open(site.home.path) as store:
        for source in ("artifacts/model", "artifacts/model/MLmodel"):
            Registry(site.home, store).register("net", made, source)
    return {"run": made}


def base(number: int = 1) -> str:
    return f"/api/v1/models/net/versions/{number}/files"


@pytest.mark.slow
def test_a_version_is_downloaded_after_its_run_was_deleted(
    site: Site, versions: dict[str, str], tmp_path: Path
) -> None:
    site.post(f"/api/v1/runs/{versions['run']}/finish", {"status": "succeeded"})
    assert site.ask("DELETE", f"/api/v1/runs/{versions['run']}").status_code == 200
    with phalanx.Client(site.url, site.token) as client:
        folder, file = sorted(client.model("net")[1], key=lambda one: one.number)
        assert client.has_version_files(folder)
        taken = client.download_version(folder, tmp_path / "net")
        assert (taken.files, taken.size) == (2, sum(map(len, FILES.values())))
        assert (tmp_path / "net/data/w.bin").read_bytes() == FILES["model/data/w.bin"]
        client.download_version(file, tmp_path / "file")
        assert (tmp_path / "file/MLmodel").read_bytes() == FILES["model/MLmodel"]
        with pytest.raises(CallError, match="already exists"):
            client.download_version(folder, tmp_path / "net")
        with pytest.raises(CallError, match="no version 9"):
            client.download_version(folder._replace(number=9, run_id=None), tmp_path / "nine")
    part = site.ask("GET", f"{base()}/data/w.bin", headers={"Range": "bytes=7-13"})
    assert (part.status_code, part.content) == (206, b"weights")


def test_only_who_sees_the_project_sees_the_files(site: Site, versions: dict[str, str]) -> None:
    stranger = site.context.tokens.create("stranger", "viewer", projects=["other"])
    viewer = site.context.tokens.create("watcher", "viewer", projects=["vision"])
    for path in (base(), f"{base()}/MLmodel"):
        assert site.ask("GET", path, stranger).status_code == 404
        assert site.ask("GET", path, viewer).status_code == 200
        assert site.ask("GET", path, site.run_token(versions["run"])).status_code == 403


@pytest.mark.parametrize(
    "path", ["../files.json", "..%2ffiles.json", "%2e%2e/files.json", "data", "nothing", "x" * 300]
)
def test_no_path_leads_out_of_a_version(site: Site, versions: dict[str, str], path: str) -> None:
    status, body = site.raw("GET", f"{base()}/{path}")
    assert status in (400, 404), body
