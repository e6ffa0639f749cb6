"""What `run` and `show` tell of a run that failed: who was first, and what to do."""

from __future__ import annotations

import pytest

from tests.cli.homes import THREE, Place, place_fixture

__all__ = ["place_fixture"]

FAILING = 'if [ "$PHALANX_REPLICA" = worker-1 ]; then {}; else sleep 30; fi'


def test_the_first_that_failed_is_reported_with_its_last_lines(place: Place) -> None:
    script = "raise ValueError('a bad batch')"
    answer = place.run(FAILING.format(f'echo before; python3 -c "{script}"'), framework="plain", environment=THREE)
    assert answer.code == 1
    assert "worker-1 failed first: ValueError: a bad batch (exit code 1)" in answer.err
    (run_id,) = place.run_ids()
    shown = place.call("show", run_id).out
    assert "worker-1 failed first: ValueError: a bad batch (exit code 1)" in shown
    assert "2 others ended as a consequence" in shown
    assert "  | before" in shown
    rows = {row["name"]: row["reason"] for row in place.call("show", run_id, "--json").data["replicas"]}
    assert rows["master-0"] == rows["worker-0"] == "stopped because worker-1 failed"


@pytest.mark.slow
def test_a_replica_that_lost_its_peer_did_not_fail_first(place: Place) -> None:
    lost = "ConnectionResetError: Connection reset by peer"
    script = (
        f"if [ $PHALANX_REPLICA = master-0 ]; then echo 'Traceback (most recent call last):'; echo '{lost}'; "
        "exit 1; fi; "
        'if [ "$PHALANX_REPLICA" = worker-1 ]; then sleep 0.7; exit 3; fi; sleep 30'
    )
    answer = place.run(script, framework="plain", environment=THREE)
    assert answer.code == 3
    assert "worker-1: exit code 3" in answer.err
    assert "exit code 1, after worker-1 failed" in answer.err


@pytest.mark.slow
def test_a_run_in_which_no_one_says_anything_is_ended_and_says_where_it_was(place: Place) -> None:
    (place.folder / "train.py").write_text(
        "import os, time\n"
        "def load():\n"
        "    time.sleep(60)\n"
        "print('begins', flush=True)\n"
        "if os.environ['PHALANX_REPLICA'] == 'worker-0':\n"
        "    load()\n"
        "time.sleep(60)\n"
    )
    answer = place.run("python3 train.py", framework="plain", environment={**THREE, "stall_timeout": 2})
    assert answer.code != 0
    words = "worker-0: stalled: no replica wrote a line or a metric for 2 s; worker-0 at train.py:3; "
    assert words + "master-0, worker-1 at train.py:7" in answer.err
    assert "stalled, waiting for worker-0" in answer.err
    assert "the others wait for worker-0" in answer.err


@pytest.mark.slow
def test_a_run_that_goes_on_talking_is_left_alone(place: Place) -> None:
    (place.folder / "talk.py").write_text(
        "import time\n"
        "from phalanx import tracking\n"
        "for step in range(8):\n"
        "    time.sleep(0.4)\n"
        "    tracking.log(step=step, loss=1.0)\n"  # not a line
    )
    answer = place.run("python3 talk.py", environment={"stall_timeout": 2})
    assert answer.code == 0, answer.err


@pytest.mark.slow
def test_a_failure_of_an_earlier_attempt_is_not_informed_of_the_last_one(place: Place) -> None:
    run_id = place.ran("[ $PHALANX_ATTEMPT = 2 ]")
    assert "master-0 failed first" in place.call("show", run_id).out
    assert place.call("resume", run_id).code == 0
    assert "failed first" not in place.call("show", run_id).out


@pytest.mark.slow
def test_a_rebuilt_database_says_the_same(place: Place) -> None:
    run_id = place.ran(FAILING.format("exit 5"), framework="plain", environment=THREE)
    before = place.call("show", run_id, "--json").data
    assert place.call("doctor", "--rebuild").code == 0
    after = place.call("show", run_id, "--json").data
    assert after["facts"]["failure"] == before["facts"]["failure"]
    assert after["replicas"] == before["replicas"]


@pytest.mark.slow
def test_processes_that_a_replica_starts_itself_have_series_of_their_own(place: Place) -> None:
    (place.folder / "log.py").write_text("from phalanx import tracking\ntracking.log(step=0, loss=1.0)\n")
    command = "RANK=0 LOCAL_RANK=0 python3 log.py; RANK=1 LOCAL_RANK=1 python3 log.py"
    run_id = place.ran(command, framework="pytorch")
    (metric,) = place.call("metrics", run_id, "loss", "--json").data["metrics"]
    assert [(line["replica"], line["rank"]) for line in metric["series"]] == [("master-0", 0), ("master-0.1", 1)]


@pytest.mark.slow
def test_several_processes_of_a_replica_are_replicas_of_their_own_to_every_command(place: Place) -> None:
    (place.folder / "log.py").write_text(
        "import os\nfrom phalanx import tracking\n"
        "print('rank', os.environ['RANK'], flush=True)\n"
        "tracking.log(step=0, loss=float(os.environ['RANK']))\n"
    )
    environment = {"replicas": {"n_workers": 1, "processes": 2}}
    run_id = place.ran("python3 log.py", framework="pytorch", environment=environment)
    shown = place.call("show", run_id, "--json").data
    assert shown["status"] == "succeeded", shown
    names = ["master-0", "master-0.1", "worker-0", "worker-0.1"]
    assert [(row["name"], row["rank"]) for row in shown["replicas"]] == list(zip(names, range(4), strict=True))
    (metric,) = place.call("metrics", run_id, "loss", "--json").data["metrics"]
    assert metric["replicas"] == names
    assert place.call("logs", run_id, "--replica", "worker-0.1").out.strip().endswith("rank 3")
    assert place.call("doctor", "--rebuild").code == 0
    assert place.call("show", run_id, "--json").data["replicas"] == shown["replicas"]
