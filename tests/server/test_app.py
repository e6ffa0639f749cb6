"""The HTTP status of a fault: who must act, and whether the same request may work later."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from phalanx.backends.contract import EngineUnavailable
from phalanx.errors import StoreError, SystemFault
from tests.ports import free_port
from tests.server.site import Site
from tests.server.started import file_of, start, until


@pytest.fixture(name="away")
def away_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not answer: nobody listens at its address."""
    cluster = {"name": "away", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}
    context = {"name": "away", "context": {"cluster": "away", "user": "away"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "away", "user": {}}]}
    (tmp_path / "config").write_text(json.dumps({"current-context": "away", **config}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


@pytest.fixture(name="over", scope="module")
def over_fixture(site: Site) -> str:
    run = start(site, "true")
    until(site, run["id"], "succeeded")
    return str(run["id"])


@pytest.mark.usefixtures("away")
def test_a_cluster_that_does_not_answer_is_not_the_callers_fault(site: Site) -> None:
    answer = site.ask("POST", "/api/v1/runs/submit", json={"files": [file_of("true")], "on": "kubernetes"})
    assert answer.status_code == 503, answer.text
    assert "no response from http://127.0.0.1" in answer.json()["error"]["message"]


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("action", ["restart", "copy", "resume"])
def test_nor_is_it_that_of_who_runs_something_again(site: Site, over: str, action: str) -> None:
    with sqlite3.connect(site.home.path / "phalanx.db") as database:
        database.execute("UPDATE runs SET backend = 'kubernetes' WHERE id = ?", [over])
    try:
        answer = site.ask("POST", f"/api/v1/runs/{over}/{action}")
    finally:
        with sqlite3.connect(site.home.path / "phalanx.db") as database:
            database.execute("UPDATE runs SET backend = 'native' WHERE id = ?", [over])
    assert answer.status_code == 503, answer.text
    assert "no response from http://127.0.0.1" in answer.json()["error"]["message"]


@pytest.mark.parametrize("action", ["restart", "copy"])
def test_a_run_that_cannot_be_run_again_is_a_conflict(site: Site, action: str) -> None:
    run_id = site.post("/api/v1/runs", {"name": "elsewhere"}, 201)["id"]
    answer = site.ask("POST", f"/api/v1/runs/{run_id}/{action}")
    assert answer.status_code == 409, answer.text
    assert "was tracked, not started" in answer.json()["error"]["message"]


FAULTS = [
    (SystemFault("a", transient=True), 503),
    (SystemFault("a", transient=False), 400),
    (EngineUnavailable("a"), 503),
    (StoreError("a"), 503),
    (StoreError("a", transient=False), 503),  # only its administrator can tell what is wrong with a database
]


@pytest.mark.parametrize(("fault", "status"), FAULTS)
@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/2.0/mlflow/registered-models/get?name=m"])
def test_a_fault_has_the_same_status_in_both_apis(
    site: Site, monkeypatch: pytest.MonkeyPatch, fault: SystemFault, status: int, path: str
) -> None:
    from phalanx.server.context import Context

    def failing(_: Context) -> None:
        raise fault

    monkeypatch.setattr(Context, "store", property(failing))
    answer = site.ask("GET", path)
    assert answer.status_code == status, answer.text
    assert "a" in answer.text
