"""POST /api/v1/tensorboard, with a program that is called like TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phalanx.server import boards
from phalanx.spool import PointWriter
from tests.boards.programs import install
from tests.cli.homes import wait_for
from tests.server.site import Site

PATH = "/api/v1/tensorboard"


@pytest.fixture(name="shown")
def shown_fixture(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    yield site
    site.app.state.boards.close()


def tracked(site: Site, project: str = "default", **params: Any) -> str:
    """A run with one point."""
    made = site.ask("POST", "/api/v1/runs", json={"project": project, "params": params}).json()
    folder = site.home.run(made["id"]).path / "replicas" / "master-0" / "attempt-1"
    folder.mkdir(parents=True, exist_ok=True)
    writer = PointWriter(folder / "client-1.points")
    writer.add(1, 1.7e9, {"loss": 0.5})
    writer.close()
    return str(made["id"])


def seen(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(url, trust_env=False, verify=False).json()
    return found


def test_a_caller_on_this_machine_gets_the_address_of_a_tensorboard_on_loopback(shown: Site) -> None:
    first, second = tracked(shown, lr=0.1), tracked(shown, lr=0.2)
    answer = shown.ask("POST", PATH, json={"runs": [first, second]})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["command"] == f"phalanx tensorboard {first} {second}"
    there = seen(found["url"])
    assert (there["host"], sorted(there["seen"])) == ("127.0.0.1", ["lr=0.1", "lr=0.2"])
    again = shown.ask("POST", PATH, json={"runs": [second, first]}).json()
    assert again["url"] == found["url"]
    shown.app.state.boards.close()
    wait_for(lambda: not Path(f"/proc/{there['pids'][0]}").exists())
    assert not Path(there["logdir"]).exists()


def test_a_caller_elsewhere_gets_the_command(shown: Site) -> None:
    run_id = tracked(shown)
    answer = shown.ask("POST", PATH, json={"query": "status:running it's"}, headers={"X-Forwarded-For": "192.0.2.1"})
    assert answer.status_code in (400, 404)
    answer = shown.ask("POST", PATH, json={"query": f"id:{run_id}"}, headers={"X-Forwarded-For": "192.0.2.1"})
    assert answer.json() == {"url": None, "command": f"phalanx tensorboard -q id:{run_id}"}


def test_only_runs_that_the_caller_may_see_are_shown(shown: Site) -> None:
    mine, theirs = tracked(shown, "mine", lr=1), tracked(shown, "theirs", lr=2)
    token = shown.context.tokens.create("viewer", "viewer", projects=["mine"])
    both = shown.ask("POST", PATH, token, json={"runs": [mine, theirs]})
    assert len(seen(both.json()["url"])["seen"]) == 1
    assert shown.ask("POST", PATH, token, json={"runs": [theirs]}).status_code == 404
    found = shown.ask("POST", PATH, token, json={"query": "params.lr:>0"}).json()
    assert len(seen(found["url"])["seen"]) == 1


@pytest.mark.parametrize(
    "body", [{}, {"runs": []}, {"runs": ["a"], "query": "b"}, {"runs": "a"}, {"query": 3}, {"query": "x" * 3000}]
)
def test_a_body_that_names_no_runs_is_refused(shown: Site, body: dict[str, Any]) -> None:
    assert shown.ask("POST", PATH, json=body).status_code == 400


def test_there_are_few_at_a_time(shown: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MOST", 1)
    first, second = tracked(shown), tracked(shown)
    assert shown.ask("POST", PATH, json={"runs": [first]}).status_code == 200
    refused = shown.ask("POST", PATH, json={"runs": [second]})
    assert refused.status_code == 503
    assert "in use" in refused.text


def test_without_the_program_it_says_how_to_get_it(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = tracked(site)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = site.ask("POST", PATH, json={"runs": [run_id]})
    assert answer.status_code == 400
    assert "pip install tensorboard" in answer.text
