"""A backend of another package, through the REST API of a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.third_party.installation import install
from tests.server.conftest import LEFT_BEHIND
from tests.server.site import Site
from tests.server.started import file_of, log_of, start, until

pytestmark = pytest.mark.filterwarnings(LEFT_BEHIND)


@pytest.fixture(name="site")
def site_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(install(tmp_path / "site-packages"))
    with Site(tmp_path) as found:
        yield found


def test_a_submitted_run_runs_there_to_its_end(site: Site) -> None:
    run = start(site, "nice; echo done", "environment: {shell: {nice: 5}}\n", on="shell")
    over = until(site, run["id"])
    assert (over["status"], over["backend"]) == ("succeeded", "shell")
    assert log_of(site, run["id"]).split() == [str(min(os.nice(0) + 5, 19)), "done"]


def test_a_run_is_stopped(site: Site) -> None:
    run = start(site, "sleep 600", on="shell")
    until(site, run["id"], "running")
    site.post(f"/api/v1/runs/{run['id']}/stop", {})
    assert until(site, run["id"])["status"] == "stopped"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("shell: {nice: 50}", "expected a whole number from 0 to 19"),
        ("resources: {gpu: {requests: 1}}", "the shell has no GPUs"),
    ],
)
def test_what_is_wrong_is_refused_with_its_faults(site: Site, section: str, said: str) -> None:
    body = {"files": [file_of("true", f"environment: {{{section}}}\n")], "on": "shell"}
    answer = site.ask("POST", "/api/v1/runs/submit", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["faults"][0]["message"]


@pytest.mark.slow
def test_its_replicas_write_to_the_shared_folder_and_not_through_the_server(site: Site) -> None:
    run = start(site, "sleep 600", on="shell")
    until(site, run["id"], "running")
    path, token = f"/api/v1/pods/{run['id']}/1/files/master-0/log?offset=0", site.run_token(run["id"])
    answer = site.ask("PUT", path, token, content=b"x")
    assert (answer.status_code, "does not run in pods" in answer.text) == (409, True)
    site.post(f"/api/v1/runs/{run['id']}/stop", {})
    until(site, run["id"])
