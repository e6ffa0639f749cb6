from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from phalanx.home.lease import Lease
from phalanx.server.routes.queue import somebody_schedules
from phalanx.store import Run, Store
from tests.server.site import Site
from tests.server.started import start, until


def run_of(run_id: str, **fields: Any) -> Run:
    now = datetime.now(UTC)
    blank: dict[str, Any] = dict.fromkeys(Run._fields)
    known = {
        **blank,
        "id": run_id,
        "project": "default",
        "kind": "experiment",
        "backend": "native",
        "user": "me",
        "status": "succeeded",
        "reason": "",
        "attempt": 1,
        "priority": 0,
        "created_at": now,
        "updated_at": now,
        "tags": (),
        "params": {},
        "summary": {},
    }
    return Run(**{**known, **fields})


def put(site: Site, *runs: Run) -> None:
    with Store.open(site.home.path) as store:
        for run in runs:
            store.add(run)


def place_of(site: Site, run_id: str, wanted: int) -> int | None:
    """As the queue says within a moment: it is read anew twice a second."""
    deadline = time.monotonic() + 20
    while True:
        place: int | None = next(row["place"] for row in site.get("/api/v1/queue")["runs"] if row["id"] == run_id)
        if place == wanted or time.monotonic() > deadline:
            return place
        time.sleep(0.05)


def test_the_queue_shows_who_runs_who_waits_and_for_what(site: Site) -> None:
    first = start(site, "sleep 60", "environment:\n  resources:\n    cpu: {requests: 10000}\n")
    until(site, first["id"], "running")
    waiting = [start(site, "true", project="other", priority=place) for place in (0, 5)]
    answer = site.get("/api/v1/queue")
    assert answer["schedules"] is True
    rows = {row["id"]: row for row in answer["runs"]}
    assert rows[first["id"]]["place"] is None
    assert rows[first["id"]]["asked"] == {"cpu": 10_000.0, "memory_mib": 0.0, "gpus": 0}
    assert [rows[run["id"]]["place"] for run in waiting] == [2, 1]  # the higher priority is first
    assert rows[waiting[0]["id"]]["waits_for"] == "waits for 1 run ahead in the queue"
    assert rows[waiting[1]["id"]]["waits_for"].startswith(
        "waits for free resources on this machine: requests 1 CPU of "
    )
    changed = site.post(f"/api/v1/runs/{waiting[0]['id']}/priority", {"priority": 6})
    assert changed["priority"] == 6
    kept = site.home.run(waiting[0]["id"]).read()
    assert kept is not None
    assert kept.priority == 6  # what a rebuilt database would read
    assert place_of(site, waiting[0]["id"], 1) == 1
    for wrong in ({"priority": "9"}, {"priority": 10**12}, {}, {"priority": 1, "more": 2}):
        assert site.ask("POST", f"/api/v1/runs/{waiting[0]['id']}/priority", json=wrong).status_code == 400
    viewer = site.context.tokens.create("queue-viewer", "viewer", projects=["other"])
    refused = site.ask("POST", f"/api/v1/runs/{waiting[0]['id']}/priority", viewer, json={"priority": 9})
    assert refused.status_code == 403
    machine = site.get("/api/v1/machine")
    assert machine["free"]["cpu"] == 0.0
    for run in (*waiting, first):
        site.post(f"/api/v1/runs/{run['id']}/stop", {})
    for run in (*waiting, first):
        until(site, run["id"])


def test_the_queue_shows_only_what_one_may_see(own_site: Site) -> None:
    own_site.scheduling.stop()
    put(
        own_site,
        run_of("aaaa-1", status="created", project="mine", attempt=0),
        run_of("aaaa-2", status="created", project="theirs", attempt=0, priority=1),
    )
    token = own_site.context.tokens.create("narrow", "viewer", projects=["mine"])
    answer = own_site.ask("GET", "/api/v1/queue", token).json()
    assert [(row["id"], row["place"]) for row in answer["runs"]] == [("aaaa-1", 2)]
    assert (answer["count"], answer["schedules"]) == (1, False)


def test_the_machine_is_reported_and_where_the_home_is_only_to_admins(site: Site) -> None:
    answer = site.get("/api/v1/machine")
    assert answer["cpus"] >= 1
    assert answer["memory_mib"] > 100
    assert isinstance(answer["gpus"], list)
    assert answer["disk"]["free_bytes"] <= answer["disk"]["total_bytes"]
    assert answer["host"]
    assert answer["version"]
    assert "home" not in answer
    admin = site.context.tokens.create("root", "admin")
    assert site.ask("GET", "/api/v1/machine", admin).json()["home"] == str(site.home.path)


def test_whether_anybody_schedules_is_seen_without_standing_in_the_way(own_site: Site) -> None:
    own_site.scheduling.stop()
    assert somebody_schedules(own_site.home) is False
    lease = Lease(own_site.home)
    assert lease.take()
    assert somebody_schedules(own_site.home) is True
    lease.release()
    assert somebody_schedules(own_site.home) is False
    assert lease.take()
    lease.release()
    lease.close()


def test_groups_are_reported_with_what_became_of_their_runs(own_site: Site) -> None:
    early = datetime(2026, 1, 1, tzinfo=UTC)
    put(
        own_site,
        run_of("aaaa-1", group="g1", created_at=early),
        run_of("aaaa-2", group="g1", status="failed"),
        run_of("aaaa-3", group="g1"),
        run_of("aaaa-4", group="g2", project="other"),
        run_of("aaaa-5"),
    )
    answer = own_site.get("/api/v1/groups")["groups"]
    assert [(one["group"], one["project"], one["runs"]) for one in answer] == [("g2", "other", 1), ("g1", "default", 3)]
    assert answer[1]["statuses"] == {"failed": 1, "succeeded": 2}
    assert answer[1]["created_at"] == early.isoformat()
    assert [one["group"] for one in own_site.get("/api/v1/groups", project="other")["groups"]] == ["g2"]
    token = own_site.context.tokens.create("narrow", "viewer", projects=["default"])
    assert [one["group"] for one in own_site.ask("GET", "/api/v1/groups", token).json()["groups"]] == ["g1"]


@pytest.fixture
def measured(own_site: Site) -> Site:
    put(
        own_site,
        run_of("aaaa-1", params={"lr": 0.1, "depth": 2}, summary={"loss": 0.5, "acc": 0.1}),
        run_of("aaaa-2", params={"lr": 0.2}, summary={"loss": 0.4}),
        run_of("aaaa-3", params={"secret plan": "x"}, summary={"hidden": 1.0}, project="theirs"),
    )
    return own_site


def test_columns_are_listed_the_most_used_first(measured: Site) -> None:
    answer = measured.get("/api/v1/runs/columns", project="default")
    assert answer["params"] == [{"name": "lr", "runs": 2}, {"name": "depth", "runs": 1}]
    assert answer["metrics"] == [{"name": "loss", "runs": 2}, {"name": "acc", "runs": 1}]
    everything = measured.get("/api/v1/runs/columns")
    assert {"name": "hidden", "runs": 1} in everything["metrics"]
    token = measured.context.tokens.create("narrow", "viewer", projects=["default"])
    assert measured.ask("GET", "/api/v1/runs/columns", token).json() == answer


def test_a_list_has_only_the_columns_that_are_asked_for(measured: Site) -> None:
    rows = measured.get("/api/v1/runs", columns="params.lr,metric.acc", sort="id")["runs"]
    assert [row["params"] for row in rows] == [{"lr": 0.1}, {"lr": 0.2}, {}]
    assert [row["summary"] for row in rows] == [{"acc": 0.1}, {}, {}]
    assert all(row["waits_for"] is None for row in rows)
    assert measured.get("/api/v1/runs", columns="", sort="id")["runs"][0]["params"] == {}
    assert measured.get("/api/v1/runs", sort="id")["runs"][0]["params"] == {"lr": 0.1, "depth": 2}


def test_what_a_run_waits_for_on_a_cluster_stands_in_its_row(own_site: Site) -> None:
    own_site.scheduling.stop()
    put(own_site, run_of("aaaa-1", status="scheduled", backend="slurm"), run_of("aaaa-2"))
    with Store.open(own_site.home.path) as store:
        for run_id in ("aaaa-1", "aaaa-2"):
            store.put_fact(run_id, "waiting", {"why": "slurm:7 waits: Priority", "at": 1.0})
    rows = {row["id"]: row["waits_for"] for row in own_site.get("/api/v1/runs")["runs"]}
    assert rows == {"aaaa-1": "slurm:7 waits: Priority", "aaaa-2": None}
    assert own_site.get("/api/v1/runs/aaaa-1")["waits_for"] == "slurm:7 waits: Priority"
    assert own_site.get("/api/v1/queue")["runs"][0]["waits_for"] == "slurm:7 waits: Priority"
    with Store.open(own_site.home.path) as store:
        store.delete("aaaa-1")
