"""projects, code, config and whoami, in a home and over a server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli import phalanx
from phalanx.server.auth.identities import Role
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.test_remote import Laptop
from tests.server.site import Site
from tests.server.started import sent, start, until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path / "site") as made:
        yield made


def laptop(site: Site, base: Path, token: str | None = None) -> Laptop:
    return Laptop(base, site.url, site.token if token is None else token)


# projects ------------------------------------------------------------------------------------------------------------


def test_projects_are_listed_with_those_nested_in_them(place: Place) -> None:
    place.remember("aaaa1", project="team/vision")
    place.remember("aaaa2", project="team/vision/ablation", status="failed")
    place.remember("aaaa3", project="other")
    assert place.quick("projects", "create", "team", "--description", "all of us").out == "created team\n"
    assert place.quick("projects", "create", "team/empty").code == 0
    rows = {row["name"]: row for row in place.quick("projects", "--json").data["projects"]}
    assert {name: (row["runs"], row["total"]) for name, row in rows.items()} == {
        "other": (1, 1),
        "team": (0, 2),
        "team/empty": (0, 0),
        "team/vision": (1, 2),
        "team/vision/ablation": (1, 1),
    }
    assert rows["team"]["description"] == "all of us"
    assert "team/vision/ablation  1" in place.quick("projects").out
    shown = place.quick("projects", "show", "team", "--json").data
    assert shown["nested"] == ["team/empty", "team/vision", "team/vision/ablation"]
    assert shown["statuses"] == {"succeeded": 1, "failed": 1}
    inside = place.quick("ps", "--project", "team", "--json").data["runs"]
    assert sorted(run["id"] for run in inside) == ["aaaa1", "aaaa2"]
    assert [run["id"] for run in place.quick("ps", "-q", "project:team/vision", "--json").data["runs"]] == ["aaaa1"]


def test_projects_are_described_and_removed_and_what_cannot_be_is_said(place: Place) -> None:
    place.remember("aaaa1", project="team/vision")
    assert place.quick("projects", "create", "team/empty").code == 0
    assert place.quick("projects", "describe", "team/vision", "cats").code == 0
    assert "cats" in place.quick("projects", "show", "team/vision").out
    for words, said in (
        (("create", "team/vision"), "already exists"),
        (("create", "team/empty"), "already exists"),
        (("create", "a//b"), "no project name"),
        (("create", "*"), "no project name"),
        (("create", "a/../b"), "no project name"),
        (("create", "a\nb"), "line breaks"),
        (("show", "tea"), "there is no project `tea`"),
        (("describe", "nothing", "x"), "there is no project"),
        (("rm", "team"), "has 1 runs"),
        (("rm", "team", "--runs", "--json"), "--yes"),
    ):
        answer = place.quick("projects", *words)
        assert (answer.code, said in answer.out + answer.err) == (2, True), (words, answer)
    assert place.quick("projects", "rm", "team/empty").code == 0
    assert place.quick("projects", "rm", "team", "--runs", "--yes").out == "removed team\n"
    assert place.quick("projects", "--json").data["projects"] == []


def test_projects_over_a_server_follow_the_rights_of_the_caller(site: Site, tmp_path: Path) -> None:
    tokens = site.context.tokens
    lead = laptop(site, tmp_path / "lead", tokens.create("lead", "editor", projects=["team"]))
    guest = laptop(site, tmp_path / "guest", tokens.create("guest", "viewer", projects=["team/vision"]))
    assert lead.quick("projects", "create", "team/vision", "--description", "cats").code == 0
    assert lead.quick("projects", "create", "team/text").code == 0
    refused = lead.quick("projects", "create", "elsewhere")
    assert (refused.code, "editor" in refused.err) == (2, True)
    run_id = site.ask("POST", "/api/v1/runs", lead.token, json={"project": "team/vision", "name": "x"}).json()["id"]
    seen = {who: [row["name"] for row in who.quick("projects", "--json").data["projects"]] for who in (lead, guest)}
    assert seen == {lead: ["team", "team/text", "team/vision"], guest: ["team/vision"]}
    assert lead.quick("projects", "show", "team", "--json").data["total"] == 1
    assert guest.quick("projects", "show", "team").code == 2
    assert guest.quick("projects", "describe", "team/vision", "x").code == 2
    assert [run["id"] for run in guest.quick("ps", "--project", "team", "--json").data["runs"]] == [run_id]
    assert lead.quick("ps", "--json").data["count"] == 1
    assert lead.quick("projects", "rm", "team/text").code == 0
    busy = lead.quick("projects", "rm", "team")
    assert (busy.code, "has 1 runs" in busy.err) == (2, True)
    actions = [(row["action"], row["who"]) for row in site.context.audit.last(50)]
    assert any("projects" in action and who == "lead" for action, who in actions), actions


def test_a_role_on_a_project_is_a_role_on_nested_ones(site: Site) -> None:
    tokens, accounts = site.context.tokens, site.context.accounts
    accounts.add("ana", "correct horse battery", {"team": Role.EDITOR, "team/secret": Role.VIEWER})
    of_ana = tokens.create("of-ana", "editor", user="ana", projects=["team/vision", "other"])
    token = tokens.create("lead", "editor", projects=["team"])

    def begun(project: str, token: str) -> int:
        return site.ask("POST", "/api/v1/runs", token, json={"project": project}).status_code

    assert [begun(name, token) for name in ("team", "team/a", "team/a/b", "teams", "team-b", "Team/a")] == [
        *(201, 201, 201),
        *(403, 403, 403),
    ]
    assert [begun(name, of_ana) for name in ("team/vision/a", "team/other", "other")] == [201, 403, 403]
    hidden = site.ask("POST", "/api/v1/runs", json={"project": "teams"}).json()["id"]
    assert site.ask("GET", f"/api/v1/runs/{hidden}", token).status_code == 404
    assert site.ask("GET", "/api/v1/runs?project=team", token).json()["count"] == 4
    assert site.ask("GET", "/api/v1/runs", of_ana).json()["count"] == 1


# code ----------------------------------------------------------------------------------------------------------------


def _repository(folder: Path) -> str:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    (folder / "train.py").write_text("print('one')\n")
    git("add", "train.py")
    git("commit", "-q", "-m", "first")
    (folder / "train.py").write_text("print('two')\n")
    return git("rev-parse", "HEAD").strip()


def test_the_code_of_a_run_is_printed_and_written(place: Place, tmp_path: Path) -> None:
    commit = _repository(place.folder)
    run_id = place.ran("python3 train.py", "--snapshot")
    about = place.quick("code", run_id, "--json").data
    assert (about["commit"], about["dirty"], about["has_snapshot"]) == (commit, True, True)
    assert {"path": "train.py", "size": 13} in about["files"]
    assert "+print('two')" in about["diff"]
    assert commit in place.quick("code", run_id).out
    assert place.quick("code", run_id, "--get", str(tmp_path / "got")).code == 0
    assert (tmp_path / "got/code/train.py").read_text() == "print('two')\n"
    assert json.loads((tmp_path / "got/git.json").read_text())["commit"] == commit
    assert "+print('two')" in (tmp_path / "got/changes.diff").read_text()
    again = place.quick("code", run_id, "--get", str(tmp_path / "got"))
    assert (again.code, "exists" in again.err) == (2, True)


def test_a_run_without_recorded_code_says_so(place: Place, tmp_path: Path) -> None:
    place.remember("aaaa1")
    assert "none recorded" in place.quick("code", "aaaa1").out
    answer = place.quick("code", "aaaa1", "--get", str(tmp_path / "got"))
    assert (answer.code, "nothing is recorded" in answer.err) == (2, True)
    assert not (tmp_path / "got").exists()


@pytest.mark.slow
def test_the_code_of_a_run_is_fetched_from_a_server(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.py").write_text("x = 1\n")
    git = {"commit": "c" * 40, "branch": "main", "dirty": True, "diff": "+x = 1\n"}
    run_id = start(site, "true", code=sent(site, folder), git=git)["id"]
    until(site, run_id)
    site.home.run(run_id).code.joinpath("link").symlink_to("/etc/passwd")
    there = laptop(site, tmp_path / "there")
    about = there.quick("code", run_id, "--json").data
    assert (about["commit"], about["files"]) == ("c" * 40, [{"path": "sub/a.py", "size": 6}])
    assert there.quick("code", run_id, "--get", str(tmp_path / "got")).code == 0
    written = sorted(path for path in (tmp_path / "got").rglob("*") if path.is_file())
    names = [str(path.relative_to(tmp_path / "got")) for path in written]
    assert names == ["changes.diff", "code/sub/a.py", "git.json"]
    plain = site.ask("POST", "/api/v1/runs", json={}).json()["id"]
    assert site.ask("GET", f"/api/v1/runs/{plain}/code/archive").status_code == 404


# config and whoami ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_defaults_come_from_the_configuration_and_variables_take_precedence(place: Place, tmp_path: Path) -> None:
    env: dict[str, Any] = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "PHALANX_HOME": ""}

    def call(*words: str, **more: str) -> dict[str, object]:
        answer = place.call("config", *words, "--json", **{**env, **more})
        assert answer.code == 0, answer.err
        return dict(answer.data)

    def sources(**more: str) -> dict[str, tuple[object, str]]:
        settings = call(**more)["settings"]
        assert isinstance(settings, list)
        return {row["name"]: (row["value"], row["source"]) for row in settings}

    assert sources()["project"] == ("default", "built-in")
    call("set", "project", "team/vision")
    call("set", "home", str(tmp_path / "elsewhere"))
    call("set", "backend", "local")
    assert sources()["project"] == ("team/vision", "config")
    assert sources(PHALANX_PROJECT="mine")["project"] == ("mine", "PHALANX_PROJECT")
    place.file("true")
    made = place.call("run", "--json", **env).data
    assert (tmp_path / "elsewhere" / "runs" / made["id"]).is_dir()
    shown = place.call("ps", "--json", "--project", "team", **env).data["runs"]
    assert [(row["id"], row["project"]) for row in shown] == [(made["id"], "team/vision")]
    assert os.stat(tmp_path / "config/phalanx/config.json").st_mode & 0o077 == 0
    call("unset", "home")
    assert sources()["home"] == ("~/.phalanx", "built-in")
    for words, said in (
        (("set", "project", "a//b"), "no project name"),
        (("set", "backend", "nowhere"), "no backend `nowhere`"),
        (("set", "server", "http://localhost:1"), "not logged in"),
        (("set", "color", "red"), "is not one of"),
        (("get", "server"), "not set"),
    ):
        answer = place.call("config", *words, **env)
        assert (answer.code, said in answer.err) == (2, True), answer


def test_whoami_names_the_user_and_never_the_token(site: Site, tmp_path: Path, place: Place) -> None:
    here = place.quick("whoami", "--json").data
    assert (here["where"], here["roles"], here["token"]) == (str(place.home), {"*": "admin"}, None)
    site.context.accounts.add("ana", "correct horse battery", {"team": Role.EDITOR})
    token = site.context.tokens.create("laptop", "editor", 30, user="ana", projects=["team/vision"])
    mine = laptop(site, tmp_path / "mine", token)
    answer = mine.quick("whoami", "--json")
    assert (answer.data["user"], answer.data["token"], answer.data["where"]) == ("ana", "laptop", site.url)
    assert answer.data["roles"] == {"team/vision": "editor"}
    assert answer.data["expires"] > "2026"
    text = mine.quick("whoami").out
    assert "team/vision  editor" in text
    assert token not in text + answer.out
    assert mine.quick("whoami", PHALANX_TOKEN="phx_wrong").code == 2


def test_a_login_is_the_default_server_until_it_is_unset(site: Site, tmp_path: Path) -> None:
    mine = laptop(site, tmp_path / "mine")
    off: dict[str, Any] = {"PHALANX_SERVER": None, "PHALANX_TOKEN": None}
    assert mine.quick("login", site.url, stdin=f"{site.token}\n", **off).code == 0
    assert mine.quick("config", "get", "server", **off).out.strip() == site.url
    assert mine.quick("config", "unset", "server", **off).code == 0
    assert mine.quick("config", "get", "server", **off).code == 2
    assert mine.quick("config", "set", "server", site.url, **off).code == 0
    assert mine.quick("whoami", "--json", **off).data["where"] == site.url
    assert site.token not in mine.quick("config", "--json", **off).out


def test_every_verb_of_the_table_of_polyaxons_verbs_exists() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
    section = page.read_text("utf-8").partition("## Verbs of the command line")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    words = [text for cell in rows for text in cell.split("`")[1::2]]
    named = {word.split()[1] for word in words if word.startswith("phalanx ")} - {"--version"}
    assert len(named) > 25
    assert {name for name in named if name not in phalanx.list_commands(None)} == set()  # type: ignore[arg-type]
