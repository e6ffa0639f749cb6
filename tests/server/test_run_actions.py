from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.store import Store
from tests.server.site import Site
from tests.server.started import log_of, start, until


def act(site: Site, run_id: str, action: str, status: int = 200, token: str | None = None) -> Any:
    answer = site.ask("POST", f"/api/v1/runs/{run_id}/{action}", token)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def over(site: Site) -> str:
    """A run that is over, and is not changed by any test."""
    run = start(site, "echo once", project="p", tags=["t"], name="n")
    until(site, run["id"], "succeeded")
    return str(run["id"])


def tracked(site: Site) -> str:
    return str(site.post("/api/v1/runs", {"name": "elsewhere"}, 201)["id"])


def test_a_run_is_stopped_by_name(site: Site) -> None:
    run = start(site, "sleep 60")
    until(site, run["id"], "running")
    assert act(site, run["id"], "stop")["id"] == run["id"]
    done = until(site, run["id"])
    assert (done["status"], done["reason"]) == ("stopped", "stopped by tester")
    assert act(site, run["id"], "stop")["status"] == "stopped"  # asked again, it stays as it is


def test_a_run_that_waits_is_stopped_at_once(site: Site) -> None:
    more = "environment:\n  resources:\n    cpu: {requests: 1000}\n"
    first = start(site, "sleep 60", more)  # more than there is: it runs alone
    until(site, first["id"], "running")
    second = start(site, "true")
    act(site, second["id"], "stop")
    assert until(site, second["id"])["status"] == "stopped"
    assert site.get(f"/api/v1/runs/{first['id']}")["status"] == "running"
    act(site, first["id"], "stop")
    until(site, first["id"])


def test_a_restart_is_a_new_run_of_the_same_file(site: Site, over: str) -> None:
    other = site.context.tokens.create("other", "write")
    new = act(site, over, "restart", 201, other)
    assert new["id"] != over
    assert (new["original"], new["cloning"], new["user"]) == (over, "restart", "other")
    assert (new["project"], new["tags"], new["name"]) == ("p", ["t"], "n")
    until(site, new["id"], "succeeded")
    assert log_of(site, new["id"]).strip() == "once"


def test_a_copy_begins_with_the_outputs_of_the_first(site: Site) -> None:
    run = start(site, 'cat $PHALANX_OUTPUTS/kept || echo kept > "$PHALANX_OUTPUTS/kept"')
    until(site, run["id"], "succeeded")
    new = act(site, run["id"], "copy", 201)
    assert new["cloning"] == "copy"
    until(site, new["id"], "succeeded")
    assert log_of(site, new["id"]).strip() == "kept"


@pytest.mark.parametrize("action", ["resume", "restart", "copy"])
def test_a_run_of_a_cluster_is_not_repeated_where_its_commands_are_missing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    run = start(site, "true")
    until(site, run["id"], "succeeded")
    with Store.open(site.home.path) as store, store._database.transaction():
        store._database.rows("UPDATE runs SET backend = 'slurm' WHERE id = ?", (run["id"],))
    before = site.get("/api/v1/runs")["count"]
    with monkeypatch.context() as here:
        here.setenv("PATH", str(tmp_path))
        answer = act(site, run["id"], action, 409)
    assert "`sbatch` is not on the PATH" in answer["error"]["message"]
    assert site.get("/api/v1/runs")["count"] == before
    assert site.get(f"/api/v1/runs/{run['id']}")["status"] == "succeeded"


def test_a_run_that_is_over_goes_on_as_its_next_attempt(site: Site) -> None:
    run = start(site, 'test -e "$PHALANX_OUTPUTS/x" || { touch "$PHALANX_OUTPUTS/x"; exit 3; }')
    until(site, run["id"], "failed")
    again = act(site, run["id"], "resume")
    assert again["id"] == run["id"]
    assert again["status"] not in ("failed",)
    done = until(site, run["id"], "succeeded")
    assert done["attempt"] == 2
    assert "resumed by tester" in [change["reason"] for change in done["statuses"]]


def test_a_run_that_goes_on_cannot_be_resumed_or_removed(site: Site) -> None:
    run = start(site, "sleep 60")
    until(site, run["id"], "running")
    assert "is still active" in act(site, run["id"], "resume", 409)["error"]["message"]
    answer = site.ask("DELETE", f"/api/v1/runs/{run['id']}")
    assert answer.status_code == 409
    assert "stop" in answer.json()["error"]["hint"]
    act(site, run["id"], "stop")
    until(site, run["id"])


def test_a_removed_run_is_gone_with_its_folder(site: Site) -> None:
    run = start(site, "true")
    until(site, run["id"], "succeeded")
    folder = site.folder(run["id"])
    assert site.ask("DELETE", f"/api/v1/runs/{run['id']}").json() == {"removed": [run["id"]]}
    assert not folder.exists()
    assert site.ask("GET", f"/api/v1/runs/{run['id']}").status_code == 404
    assert site.ask("DELETE", f"/api/v1/runs/{run['id']}").status_code == 404
    time.sleep(0.5)  # the scheduler has looked again
    assert site.ask("GET", f"/api/v1/runs/{run['id']}").status_code == 404


@pytest.mark.parametrize("action", ["restart", "copy", "resume"])
def test_a_run_that_is_only_tracked_is_not_started(site: Site, action: str) -> None:
    run_id = tracked(site)
    said = act(site, run_id, action, 409)["error"]["message"]
    assert "tracked, not started" in said
    site.post(f"/api/v1/runs/{run_id}/finish", {})


@pytest.mark.parametrize("action", ["stop", "restart", "copy", "resume"])
def test_who_may_not_change_a_run_cannot(site: Site, over: str, action: str) -> None:
    reader = site.context.tokens.create(f"reader-{action}", "read")
    act(site, over, action, 403, reader)
    act(site, over, action, 403, site.run_token(over))  # nor may the run itself
    act(site, "nothing-there", action, 404)
    assert site.get(f"/api/v1/runs/{over}")["status"] == "succeeded"


def test_who_may_only_look_removes_nothing(site: Site, over: str) -> None:
    reader = site.context.tokens.create("reader", "read")
    for token in (reader, site.run_token(over)):
        assert site.ask("DELETE", f"/api/v1/runs/{over}", token).status_code == 403
    assert site.folder(over).is_dir()
