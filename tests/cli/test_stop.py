from __future__ import annotations

import pytest

from tests.cli.homes import ALL_CPUS, THREE, Place, place_fixture, wait_for  # noqa: F401 - found by its name


@pytest.mark.slow
def test_it_ends_every_replica_and_says_so(place: Place) -> None:
    command = "touch ready-$RANK; exec sleep 60"
    run_id = place.queued(command, framework="pytorch", environment=THREE)
    wait_for(lambda: len(list(place.folder.glob("ready-*"))) == 3)
    answer = place.call("stop", run_id[:5])
    assert answer.code == 0
    assert answer.out == f"{run_id}: stopped: stopped by its user\n"
    replicas = place.call("show", run_id, "--json").data["replicas"]
    assert {replica["status"] for replica in replicas} == {"stopped"}
    assert {replica["cause"] for replica in replicas} == {"stopped"}


@pytest.mark.slow
def test_a_queued_run_never_starts(place: Place) -> None:
    blocker = place.queued("sleep 60", name="a.yml", environment=ALL_CPUS)
    place.until(blocker, "running")
    waiting = place.queued("touch started", environment=ALL_CPUS)
    data = place.call("stop", waiting, blocker, "--json").data
    assert data["ok"] is True
    assert [row["status"] for row in data["runs"]] == ["stopped", "stopped"]
    assert not (place.folder / "started").exists()


@pytest.mark.slow
def test_without_waiting_it_only_asks(place: Place) -> None:
    run_id = place.queued('trap "" TERM; touch ready; while :; do sleep 0.1; done')
    wait_for((place.folder / "ready").exists)
    answer = place.call("stop", "--no-wait", run_id)
    assert answer.code == 0
    assert answer.out.startswith(f"{run_id}: running: ")
    assert answer.out.endswith(" (it will be stopped)\n")


@pytest.mark.slow
def test_it_says_what_it_waits_for(place: Place) -> None:
    run_id = place.queued('trap "" TERM; touch ready; while :; do sleep 0.1; done')
    wait_for((place.folder / "ready").exists)
    answer = place.call("stop", run_id)
    assert answer.code == 0
    assert answer.err.splitlines() == [f"waiting for run {run_id} to end: its replicas have not exited yet"]
    assert answer.out == f"{run_id}: stopped: stopped by its user\n"


@pytest.mark.slow
def test_a_run_that_is_over_stays_as_it_is(place: Place) -> None:
    run_id = place.ran("true")
    answer = place.call("stop", run_id)
    assert answer.code == 0
    assert f"{run_id}: succeeded" in answer.out


@pytest.mark.slow
def test_an_unknown_run_stops_no_one(place: Place) -> None:
    process, run_id = place.begun()
    assert place.call("stop", run_id, "nobody").code == 2
    assert process.poll() is None
    assert place.status(run_id) == "running"
