"""Replicas that something keeps from starting which does not pass by itself fail after a while; others wait on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.contract import WAITING
from phalanx.backends.kubernetes.engine import controller, reconciler
from phalanx.backends.kubernetes.observe import stuck_pods
from phalanx.backends.kubernetes.observe.stuck_pods import GIVE_UP_S, StuckPodTracker
from tests.backends.kubernetes.runs import GANG, ONE, Works, log_lines, until, works
from tests.backends.kubernetes.test_engine import Attended
from tests.backends.kubernetes.test_pending import event, waiting
from tests.backends.kubernetes.test_reconciler import built
from tests.backends.kubernetes.test_states import group, job, pod

BAD = waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: x: not found')


@pytest.fixture(name="there")
def there_fixture(tmp_path: Path) -> Iterator[Works]:
    with works(tmp_path) as found:
        yield found


def keep_back(there: Works, name: str, status: dict[str, Any]) -> None:
    found = there.server.get("Pod", name)
    assert found is not None
    there.server.put({**found, "status": {"phase": "Pending", "containerStatuses": [status]}})


# how long


def test_what_lasts_is_given_up_when_it_lasted_long_enough() -> None:
    patience, stuck = StuckPodTracker(), group(pod(containerStatuses=[BAD]), works=[job()])
    assert list(patience.overdue(stuck, 0.0)) == []
    assert list(patience.overdue(stuck, GIVE_UP_S - 1)) == []
    ((uid, outcome),) = patience.overdue(stuck, GIVE_UP_S + stuck_pods.LOOK_S)
    assert (uid, outcome.cause, outcome.is_outside) == ("one", "setup", False)
    assert outcome.message.startswith("it could not start in 10 minutes: its image cannot be pulled: nowhere/image:1")


def test_what_passed_in_between_is_counted_anew() -> None:
    patience, stuck = StuckPodTracker(), group(pod(containerStatuses=[BAD]), works=[job()])
    assert list(patience.overdue(stuck, 0.0)) == []
    assert list(patience.overdue(group(pod(), works=[job()]), GIVE_UP_S / 2)) == []
    assert list(patience.overdue(stuck, GIVE_UP_S)) == []
    assert list(patience.overdue(stuck, 2 * GIVE_UP_S))


def test_want_of_room_lasts_for_ever() -> None:
    full = {"type": "PodScheduled", "status": "False", "message": "0/9 nodes are available: 9 Insufficient cpu."}
    patience, waits = StuckPodTracker(), group(pod(spec={"nodeName": None}, conditions=[full]), works=[job()])
    assert [list(patience.overdue(waits, at)) for at in (0.0, GIVE_UP_S, 1e9)] == [[], [], []]


# whose


def test_a_file_or_the_settings_say_how_long(there: Works) -> None:
    plain = there.run(ONE, "one")
    assert controller.manifest_of(plain.run_folder).give_up_s == GIVE_UP_S
    assert controller.manifest_of(there.run(ONE, "two", give_up=60.0).run_folder).give_up_s == 60.0
    own = ONE.replace("environment: {", "environment: {kubernetes: {give_up: 1h}, ")
    assert controller.manifest_of(there.run(own, "three", give_up=60.0).run_folder).give_up_s == 3600.0


def test_a_replica_whose_image_is_not_there_ends_the_run(there: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that run and wait for it are told to end by whoever schedules; those that do not run yet need not."""
    monkeypatch.setattr(reconciler, "HELD_S", 0.2)
    run = Attended(there, GANG, phase=None, give_up=0.4)
    there.server.set_pod_phase(run.pods["master-0"], "Running")
    there.say(run.pods["master-0"], *log_lines("master-0", b"x\n"))
    keep_back(there, run.pods["worker-0"], BAD)
    end = run.end("worker-0")
    assert (end["cause"], end["code"]) == ("setup", None)
    assert "its image cannot be pulled: nowhere/image:1 (x: not found)" in end["message"]
    assert run.end("worker-1")["message"] == "stopped before it started"
    assert not (run.attempt_folder.folder("master-0") / "end.json").exists()


def test_pods_that_the_namespace_refuses_end_the_run(there: Works) -> None:
    engine, attempt_folder = there.engine(give_up=0.4), there.run(ONE, give_up=0.4)
    handle = there.submit(engine, attempt_folder)
    engine.fetch(attempt_folder, handle)
    work = there.server.get("Job", "phalanx-abc-master")
    assert work is not None
    said = 'Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'
    there.server.event(work, "FailedCreate", said)
    run = until(lambda: (found := engine.observe([handle]).get(handle)) and found.state == "ended" and found)
    assert run.cause == "setup"
    assert "the pod security of the namespace (restricted:latest) rejects it: privileged" in run.why
    until(lambda: not there.server.names("ConfigMap"))


def test_a_builder_that_cannot_start_ends_the_run(there: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "GIVE_UP_S", 0.4)
    engine, attempt_folder = there.engine(), built(there)
    handle = there.submit(engine, attempt_folder)
    engine.fetch(attempt_folder, handle)
    (build,) = there.server.spawn_pods("phalanx-abc-build")
    keep_back(there, build, {**BAD, "name": "build"})
    seen = until(lambda: (found := engine.observe([handle]).get(handle)) and found.state == "ended" and found)
    assert seen.cause == "setup"
    assert seen.why.startswith("its image could not be built in")


def test_a_registry_that_is_away_is_waited_for(there: Works) -> None:
    run = Attended(there, ONE, phase=None, give_up=0.1)
    (name,) = run.pods
    keep_back(there, run.pods[name], waiting("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout"))
    until(lambda: (seen := run.seen()) and "i/o timeout" in seen.why)
    kept = next(iter(run.engine.controller.kept.values()))
    looked = kept.attempt.stuck_pods
    until(lambda: looked._looked_at > float("-inf"))
    assert run.seen() is not None
    assert run.seen().state == WAITING  # type: ignore[union-attr]
    assert not (run.attempt_folder.folder(name) / "end.json").exists()


def test_what_is_said_of_it_is_in_the_objects_of_the_run(there: Works) -> None:
    def told_to_pods(**settings: Any) -> dict[str, Any]:
        owner = json.loads(
            (there.run(ONE, f"run{len(settings)}", **settings).run_folder / "manifests.json").read_text()
        )
        found: dict[str, Any] = json.loads(owner[0]["data"]["place.json"])
        return found

    assert "give_up_s" not in told_to_pods()
    assert told_to_pods(give_up=60.0)["give_up_s"] == 60.0


def test_mpi_waits_for_all_of_its_ranks() -> None:
    """A pod of a rank is none of the replicas that have agents: what keeps it back is found all the same."""
    rank = pod("rank", members="worker-0", containerStatuses=[BAD])
    patience = StuckPodTracker(1.0)
    seen = group(rank, works=[job(name="phalanx-abc")], events=[event("x", "Pulling", "")])
    assert list(patience.overdue(seen, 0.0)) == []
    assert [uid for uid, _ in patience.overdue(seen, 2.0)] == ["rank"]
