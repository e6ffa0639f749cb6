from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent.fork_server import ForkServer
from phalanx.backends.agent_zip import AgentArchives
from phalanx.backends.local import runner
from phalanx.backends.local.capacity import NOTHING, Capacity
from phalanx.home import attempts
from phalanx.store import StatusChange
from phalanx.store.statuses import Status
from tests.scheduler.working import Works, alive

BUSY = "echo up; sleep 60"
FEW: dict[str, Any] = {"resources": {"cpu": {"requests": 1}}}


def cpus(amount: float) -> dict[str, Any]:
    return {"resources": {"cpu": {"requests": amount}}}


# how a run ends ----------------------------------------------------------------------------------------------------


def test_a_run_succeeds_when_every_replica_does(works: Works) -> None:
    run_id = works.submit("echo rank $RANK of $WORLD_SIZE; sleep 0.3", workers=2)
    run = works.settle(run_id)
    assert (run.status, run.reason, run.attempt) == ("succeeded", "finished", 1)
    assert works.statuses(run_id) == ["created", "scheduled", "starting", "running", "succeeded"]
    for rank, name in enumerate(("master-0", "worker-0", "worker-1")):
        assert works.log(run_id, name) == f"rank {rank} of 3\n"
    assert {row.status for row in works.store.replicas(run_id)} == {"succeeded"}
    assert run.started_at is not None
    assert run.finished_at is not None
    assert not (works.home.environments / f"{run_id}.json").exists()
    assert alive(run_id) == set()


def test_every_status_has_a_reason(works: Works) -> None:
    run_id = works.submit("exit 0")
    works.settle(run_id)
    assert all(change.reason for change in works.store.statuses(run_id))


def test_the_first_failure_is_named_and_the_others_are_ended_within_seconds(works: Works) -> None:
    run_id = works.submit('echo up; [ "$RANK" = 2 ] && exit 7; sleep 60', workers=3)
    began = time.monotonic()
    run = works.settle(run_id)
    assert time.monotonic() - began < 45
    assert (run.status, run.reason) == ("failed", "worker-1: exit code 7")
    causes = {f"{row.role}-{row.number}": row.cause for row in works.store.replicas(run_id)}
    assert causes == {"master-0": "stopped", "worker-0": "stopped", "worker-1": "error", "worker-2": "stopped"}


def test_what_fails_as_a_consequence_is_not_named(works: Works) -> None:
    run_id = works.submit('[ "$RANK" = 1 ] && sleep 0.2 && exit 7; sleep 0.6; exit 9', workers=2)
    assert works.settle(run_id).reason == "worker-0: exit code 7"


@pytest.mark.slow
def test_helpers_that_serve_for_ever_do_not_hang_a_run_that_succeeded(works: Works) -> None:
    run_id = works.submit("case $PHALANX_REPLICA in ps*) sleep 60;; *) exit 0;; esac", workers=1, n_ps=1)
    began = time.monotonic()
    assert works.settle(run_id).status == "succeeded"
    assert time.monotonic() - began < 45
    causes = {f"{row.role}-{row.number}": row.cause for row in works.store.replicas(run_id)}
    assert causes["ps-0"] == "stopped"
    assert {cause for name, cause in causes.items() if name != "ps-0"} == {"finished"}


SERVES = "trap 'exit 9' TERM; sleep 60 & wait"


@pytest.mark.parametrize(("framework", "deciding"), [("tensorflow", "master"), ("mxnet", "worker")])
def test_a_run_succeeds_when_the_replicas_that_do_not_only_serve_have(
    works: Works, framework: str, deciding: str
) -> None:
    command = f"[ $PHALANX_ROLE = {deciding} ] && exit 0; {SERVES}"
    run_id = works.submit(command, workers=3, n_ps=1, framework=framework)
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("succeeded", "finished")
    causes = {f"{row.role}-{row.number}": row.cause for row in works.store.replicas(run_id)}
    assert len(causes) == 5
    assert causes == {name: "finished" if name.startswith(deciding) else "stopped" for name in causes}


def test_workers_that_train_themselves_are_waited_for(works: Works) -> None:
    command = f"case $PHALANX_ROLE in ps) {SERVES};; worker) until [ -e go ]; do sleep 0.05; done;; esac"
    run_id = works.submit(command, workers=1, n_ps=1, master_task="master")  # as TensorFlow 1 code has it
    works.turn_until((works.place(run_id) / "end.json").exists)
    works.scheduler.clock = lambda: time.time() + 60  # whatever is only served for would be ended now
    for _ in range(3):
        works.scheduler.run_pass()
    (works.folder / "go").touch()
    assert works.settle(run_id).status == "succeeded"
    assert works.end(run_id, "worker-0")["cause"] == "finished"


def test_a_helper_that_fails_fails_the_run(works: Works) -> None:
    run_id = works.submit("case $PHALANX_REPLICA in ps*) exit 5;; *) sleep 60;; esac", workers=1, n_ps=1)
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("failed", "ps-0: exit code 5")


def test_the_whole_gang_is_restarted_as_a_new_attempt(works: Works) -> None:
    run_id = works.submit(
        'echo attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 3 ] || [ "$RANK" = 0 ] && exit 0; exit 4',
        workers=1,
        max_restarts=2,
    )
    run = works.settle(run_id)
    assert (run.status, run.attempt) == ("succeeded", 3)
    assert works.statuses(run_id).count("warning") == 2
    assert [works.log(run_id, "worker-0", attempt) for attempt in (1, 2, 3)] == [
        f"attempt {attempt}\n" for attempt in (1, 2, 3)
    ]
    warnings = [change.reason for change in works.store.statuses(run_id) if change.status == "warning"]
    assert warnings[0] == "worker-0: exit code 4; restart 1 of 2 follows"


def test_restarts_come_to_an_end(works: Works) -> None:
    run_id = works.submit("exit 4", max_restarts=1)
    run = works.settle(run_id)
    assert (run.status, run.attempt, run.reason) == ("failed", 2, "master-0: exit code 4")
    assert {row.attempt for row in works.store.replicas(run_id)} == {2}


def test_a_resumed_run_has_its_restarts_again(works: Works) -> None:
    run_id = works.submit("exit 4", max_restarts=1)
    run = works.settle(run_id)
    number = len(works.store.statuses(run_id)) + 1
    change = StatusChange(run_id, number, run.attempt, Status.RESUMING, "resumed", datetime.now(UTC))
    works.run_folder(run_id).append(change)
    works.store.record(change)
    run = works.settle(run_id)
    assert (run.status, run.attempt) == ("failed", 4)


def test_a_time_limit_fails_the_run_and_says_so(works: Works) -> None:
    run_id = works.submit("sleep 60", timeout=1)
    run = works.settle(run_id)
    reason = "master-0: ended by its time limit of 1 s; increase its time limit: `environment.timeout`"
    assert (run.status, run.reason) == ("failed", reason)


def test_a_memory_limit_fails_the_run_and_says_so(works: Works) -> None:
    hungry = "python3 -c 'x = bytearray(200 << 20); import time; time.sleep(60)'"
    run_id = works.submit(hungry, resources={"memory": {"limits": 80}})
    run = works.settle(run_id)
    assert run.status == "failed"
    assert "of 80 MiB" in run.reason
    assert works.store.replicas(run_id)[0].cause == "memory"


# stopping ----------------------------------------------------------------------------------------------------------


def test_a_running_run_is_stopped(works: Works) -> None:
    run_id = works.submit(BUSY, workers=1)
    works.says(run_id, "up")
    works.run_folder(run_id).ask_to_stop("enough")
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("stopped", "enough")
    assert {row.status for row in works.store.replicas(run_id)} == {"stopped"}
    assert alive(run_id) == set()
    assert works.home.asked_to_stop() == []


def test_a_queued_run_is_stopped_although_it_is_not_at_the_head(works: Works) -> None:
    works.scheduler.room = Capacity(1.0, 1e6, 0)
    first, second, third = (works.submit(BUSY, **FEW) for _ in range(3))
    works.says(first, "up")
    works.run_folder(third).ask_to_stop("changed my mind")
    works.scheduler.run_pass()
    assert works.run(third).status == "stopped"
    assert works.statuses(third) == ["created", "stopped"]
    assert works.run(second).status == "created"


def test_a_run_that_waits_for_its_restart_is_stopped(works: Works) -> None:
    run_id = works.submit("exit 1", max_restarts=50)
    works.turn_until(lambda: works.run(run_id).attempt == 2)
    works.run_folder(run_id).ask_to_stop("hopeless")
    assert works.settle(run_id).status in ("stopped", "failed")
    assert works.run(run_id).attempt < 10


def test_a_run_that_finished_before_the_stop_reached_it_succeeded(works: Works) -> None:
    run_id = works.submit("exit 0")
    works.until(run_id, "starting")
    time.sleep(0.5)
    works.run_folder(run_id).ask_to_stop("too late")
    assert works.settle(run_id).status == "succeeded"


# the queue ---------------------------------------------------------------------------------------------------------


def order_of_starts(works: Works, *run_ids: str) -> list[str]:
    at = {c.run_id: c.at for run_id in run_ids for c in works.store.statuses(run_id) if c.status == "scheduled"}
    return sorted(run_ids, key=lambda run_id: at[run_id])


def test_the_queue_goes_by_priority_and_then_by_age(works: Works) -> None:
    works.scheduler.room = Capacity(1.0, 1e6, 0)
    low = works.submit("exit 0", priority=-1, **FEW)
    old = works.submit("exit 0", **FEW)
    young = works.submit("exit 0", **FEW)
    high = works.submit("exit 0", priority=9, **FEW)
    works.settle(low, old, young, high)
    assert order_of_starts(works, low, old, young, high) == [high, old, young, low]


def test_a_small_run_does_not_overtake_a_large_one(works: Works) -> None:
    works.scheduler.room = Capacity(2.0, 1e6, 0)
    running = works.submit("echo up; sleep 0.8", **FEW)
    large = works.submit("exit 0", **cpus(2))
    small = works.submit("exit 0", **FEW)
    works.says(running, "up")
    works.scheduler.run_pass()
    assert (works.run(large).status, works.run(small).status) == ("created", "created")
    works.settle(running, large, small)
    assert order_of_starts(works, running, large, small) == [running, large, small]


def test_all_replicas_of_a_run_start_or_none(works: Works) -> None:
    works.scheduler.room = Capacity(4.0, 1e6, 0)
    first = works.submit("echo up; sleep 0.6", workers=1, **FEW)
    gang = works.submit("exit 0", workers=2, **FEW)
    works.says(first, "up")
    for _ in range(3):
        works.scheduler.run_pass()
    assert works.run(gang).status == "created"
    assert list(works.run_folder(gang).replica_folders(1)) == []
    assert works.settle(first, gang).status == "succeeded"


def test_runs_that_fit_run_side_by_side(works: Works) -> None:
    works.scheduler.room = Capacity(2.0, 1e6, 0)
    pair = [works.submit(BUSY, **FEW) for _ in range(2)]
    for run_id in pair:
        works.until(run_id, "running")
    assert {works.run(run_id).status for run_id in pair} == {"running"}


def test_memory_is_handed_out_too(works: Works) -> None:
    works.scheduler.room = Capacity(100.0, 1000.0, 0)
    wants: dict[str, Any] = {"resources": {"memory": {"requests": 600}, "cpu": {"requests": 1}}}
    first, second = (works.submit("echo up; sleep 0.4", **wants) for _ in range(2))
    works.says(first, "up")
    works.scheduler.run_pass()
    assert works.run(second).status == "created"
    assert works.settle(first, second).status == "succeeded"


def test_a_run_that_asks_for_more_than_the_machine_has_runs_alone_and_says_so(works: Works) -> None:
    works.scheduler.room = Capacity(2.0, 1e6, 0)
    small = works.submit("echo up; sleep 0.5", **FEW)
    huge = works.submit("echo up; sleep 0.5", workers=3, **FEW)
    later = works.submit("exit 0", **FEW)
    works.says(small, "up")
    works.scheduler.run_pass()
    assert works.run(huge).status == "created"
    works.says(huge, "up")
    works.scheduler.run_pass()
    assert (works.run(small).status, works.run(later).status) == ("succeeded", "created")
    works.settle(huge, later)
    reasons = [change.reason for change in works.store.statuses(huge) if change.status == "scheduled"]
    assert reasons == ["attempt 1; requests more than this machine has: 4 CPUs of 2"]


def test_a_run_that_asks_for_nothing_always_fits(works: Works) -> None:
    works.scheduler.room = NOTHING
    assert works.settle(works.submit("exit 0", **cpus(0))).status == "succeeded"


def test_runs_at_the_same_time_have_different_ports(works: Works) -> None:
    runs = [works.submit("echo up $MASTER_PORT; sleep 60", workers=2) for _ in range(3)]
    for run_id in runs:
        for name in ("master-0", "worker-1"):
            works.says(run_id, "\n", name)
    ports = [port for run_id in runs for port in facts(works, run_id)["port"].values()]
    assert len(set(ports)) == len(ports) == 9
    masters = {works.log(run_id, name).split()[1] for run_id in runs for name in ("master-0", "worker-1")}
    assert len(masters) == 3


def facts(works: Works, run_id: str, attempt: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((works.run_folder(run_id).path / f"job/attempt-{attempt}.json").read_bytes())
    return found


def test_gpus_are_handed_out_without_overlap(works: Works) -> None:
    works.new_scheduler(Capacity(100.0, 1e6, 4), ("0", "1", "2", "3"))
    wants: dict[str, Any] = {"resources": {"gpu": {"requests": 1}, "cpu": {"requests": 1}}}
    pair = [works.submit("echo [$CUDA_VISIBLE_DEVICES] up; sleep 60", workers=1, **wants) for _ in range(2)]
    third = works.submit("echo [$CUDA_VISIBLE_DEVICES]", **wants)
    for run_id in pair:
        works.says(run_id, "up", "worker-0")
        works.says(run_id, "up", "master-0")
    given = [works.log(run_id, name).split()[0] for run_id in pair for name in ("master-0", "worker-0")]
    assert sorted(given) == ["[0]", "[1]", "[2]", "[3]"]
    assert works.run(third).status == "created"
    works.run_folder(pair[0]).ask_to_stop("make room")
    works.settle(third)
    assert works.log(third).strip() in {works.log(pair[0], name).split()[0] for name in ("master-0", "worker-0")}


def test_a_run_without_gpus_sees_none_where_there_are_some(works: Works) -> None:
    works.new_scheduler(Capacity(100.0, 1e6, 1), ("0",))
    run_id = works.submit('echo "[${CUDA_VISIBLE_DEVICES-unset}]"')
    works.settle(run_id)
    assert works.log(run_id) == "[]\n"


# whoever dies, the next one goes on --------------------------------------------------------------------------------


def test_a_new_scheduler_goes_on_after_every_single_turn(works: Works) -> None:
    runs = [works.submit("echo up; sleep 0.3", workers=1), works.submit("exit 3", max_restarts=1)]
    deadline = time.monotonic() + 30
    while works.store.active():
        works.new_scheduler().run_pass()
        assert time.monotonic() < deadline
    assert [works.run(run_id).status for run_id in runs] == ["succeeded", "failed"]
    assert works.statuses(runs[0])[-1] == "succeeded"
    assert works.statuses(runs[1])[-1] == "failed"


@pytest.mark.parametrize("steps", range(6))
def test_a_store_that_missed_the_last_steps_catches_up(works: Works, steps: int) -> None:
    """As when a scheduler was killed after it wrote the history and before it told the store."""
    run_id = works.submit("exit 3", max_restarts=1)
    works.settle(run_id)
    history = works.run_folder(run_id).history()
    run = works.run_folder(run_id).read()
    assert run is not None
    works.store.delete(run_id)
    works.store.add(run._replace(status="created", reason="submitted", attempt=0))
    for change in history[: len(history) - steps]:
        works.store.record(change)
    works.new_scheduler()
    assert works.settle(run_id).status == "failed"
    works.scheduler.run_pass()
    assert works.run_folder(run_id).history() == history == works.store.statuses(run_id)


def test_a_folder_without_a_row_is_adopted(works: Works) -> None:
    run_id = works.submit("exit 0")
    works.store.delete(run_id)
    works.new_scheduler()
    works.turn_until(lambda: run_id in works.store.ids())
    assert works.settle(run_id).status == "succeeded"
    assert works.statuses(run_id)[0] == "created"


def test_a_folder_that_comes_while_others_run_is_adopted_too(works: Works) -> None:
    busy = works.submit(BUSY)
    works.says(busy, "up")
    run_id = works.submit("exit 0")
    works.store.delete(run_id)
    works.turn_until(lambda: run_id in works.store.ids(), 5.0)
    assert works.settle(run_id).status == "succeeded"


def test_a_folder_that_is_not_a_run_disturbs_no_one(works: Works) -> None:
    (works.home.runs / "junk").mkdir()
    (works.home.runs / ".draft").mkdir()
    assert works.settle(works.submit("exit 0")).status == "succeeded"
    assert "junk" not in works.store.ids()


def test_a_run_whose_agents_were_killed_is_lost_and_leaves_nothing_behind(works: Works) -> None:
    run_id = works.submit("setsid sleep 61 & echo up; sleep 60", workers=1)
    for name in ("master-0", "worker-0"):
        works.says(run_id, "up", name)
    for name in ("master-0", "worker-0"):
        os.kill(works.agent(run_id, name), signal.SIGKILL)
    run = works.settle(run_id)
    assert run.status == "failed"
    assert run.reason.endswith("its agent was killed")
    assert {row.cause for row in works.store.replicas(run_id)} == {"lost"}
    assert alive(run_id) == set()


def test_one_killed_agent_ends_the_others_and_the_gang_is_restarted(works: Works) -> None:
    run_id = works.submit("echo up; [ $PHALANX_ATTEMPT = 2 ] || sleep 60", workers=1, max_restarts=1)
    works.says(run_id, "up", "worker-0")
    works.says(run_id, "up", "master-0")
    os.kill(works.agent(run_id, "worker-0"), signal.SIGKILL)
    run = works.settle(run_id)
    assert (run.status, run.attempt) == ("succeeded", 2)
    assert (works.end(run_id, "worker-0")["cause"], works.end(run_id, "master-0")["cause"]) == ("lost", "stopped")


def test_who_was_lost_while_no_one_looked_was_lost_when_it_last_gave_a_sign(works: Works) -> None:
    run_id = works.submit('echo up; [ "$RANK" = 0 ] && sleep 60; sleep 1; exit 9', workers=1)
    works.says(run_id, "up", "worker-0")
    works.says(run_id, "up", "master-0")
    os.kill(works.agent(run_id, "master-0"), signal.SIGKILL)
    until = time.monotonic() + 20
    while not (works.place(run_id, "worker-0") / "end.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    works.new_scheduler()
    assert works.settle(run_id).reason == "master-0: its agent was killed"


def test_an_agent_that_was_stopped_from_outside_fails_the_run(works: Works) -> None:
    run_id = works.submit(BUSY, workers=1)
    works.says(run_id, "up", "worker-0")
    works.says(run_id, "up", "master-0")
    os.kill(works.agent(run_id, "worker-0"), signal.SIGTERM)
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("failed", "worker-0: its agent was stopped from outside Phalanx")


def interrupted(works: Works, run_id: str) -> None:
    """As a scheduler leaves a run when it is killed after it said `scheduled` and before it started anything."""
    change = StatusChange(run_id, 2, 1, Status.SCHEDULED, "attempt 1", datetime.now(UTC))
    works.run_folder(run_id).append(change)
    works.store.record(change)


def test_a_start_that_was_interrupted_before_anything_began_is_made_again(works: Works) -> None:
    run_id = works.submit("echo once")
    interrupted(works, run_id)
    run = works.settle(run_id)
    assert (run.status, run.attempt) == ("succeeded", 1)
    assert works.log(run_id) == "once\n"
    steps = [status for status in works.statuses(run_id) if status != "running"]  # it may be over before it is seen
    assert steps == ["created", "scheduled", "starting", "succeeded"]


def test_a_start_that_was_interrupted_after_the_facts_were_written_is_made_again(works: Works) -> None:
    run_id = works.submit("echo once", workers=1)
    interrupted(works, run_id)
    job = works.run_folder(run_id).path / "job"
    job.mkdir()
    (job / "attempt-1.json").write_text('{"port": {"master-0": 20001, "worker-0": 20002}}')
    assert works.settle(run_id).status == "succeeded"
    assert works.log(run_id, "worker-0") == "once\n"


def test_a_start_that_was_interrupted_when_one_replica_was_already_over_is_settled(works: Works) -> None:
    run_id = works.submit("echo once", workers=1)
    interrupted(works, run_id)
    attempt_folder = attempts.AttemptFolder(works.run_folder(run_id).path, run_id, 1, ("master-0", "worker-0"))
    attempts.record_lost(attempt_folder, "master-0", "for the test")
    end = works.place(run_id) / "end.json"
    end.write_text(json.dumps({**json.loads(end.read_text()), "cause": "finished", "code": 0}))
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("failed", "worker-0: its agent never started")


def test_an_interrupted_start_is_not_repeated_after_a_request_to_stop(works: Works) -> None:
    run_id = works.submit("echo once")
    interrupted(works, run_id)
    works.run_folder(run_id).ask_to_stop("never mind")
    assert works.settle(run_id).status == "stopped"
    assert works.log(run_id) == ""


def test_agents_that_were_started_by_a_killed_scheduler_are_found(works: Works) -> None:
    run_id = works.submit("echo up; sleep 1")
    works.says(run_id, "up")
    history = works.run_folder(run_id).path / "history"
    kept = works.run_folder(run_id).history()[:2]  # it was killed right after the start, before it could say so
    history.unlink()
    for change in kept:
        works.run_folder(run_id).append(change)
    run = works.run_folder(run_id).read()
    assert run is not None
    works.store.delete(run_id)
    works.store.add(run)
    works.new_scheduler()
    assert works.settle(run_id).status == "succeeded"
    assert works.log(run_id) == "up\n"


def test_a_replica_whose_agent_never_came_is_lost_and_ends_the_others(works: Works) -> None:
    run_id = works.submit(BUSY, workers=1)
    works.says(run_id, "up", "worker-0")
    works.says(run_id, "up", "master-0")
    os.kill(works.agent(run_id, "worker-0"), signal.SIGKILL)
    shutil.rmtree(works.place(run_id, "worker-0"))
    began = time.monotonic()
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("failed", "worker-0: its agent never started")
    assert time.monotonic() - began < 45


def test_a_start_that_fails_halfway_leaves_nothing_and_says_why(works: Works) -> None:
    run_id = works.submit(BUSY, workers=1)
    plan = works.run_folder(run_id).plan_file
    content = json.loads(plan.read_text())
    content["templates"][content["replicas"][1]["template"]]["environment"]["BROKEN"] = {"parts": [{"port": "nobody"}]}
    plan.write_text(json.dumps(content))
    run = works.settle(run_id)
    assert run.status == "failed"
    assert "could not be started" in run.reason
    assert alive(run_id) == set()


def test_two_agents_for_one_replica_run_its_command_once(works: Works) -> None:
    run_id = works.submit("echo once; sleep 0.5")
    works.says(run_id, "once")
    attempt_folder = attempts.AttemptFolder(works.run_folder(run_id).path, run_id, 1, ("master-0",))
    environment = {**os.environ}
    started = attempts.read_facts(attempt_folder)
    with closing(ForkServer()) as fork_server:
        runner.start(
            attempt_folder, working=Path(started["working"]), environment=environment, gpus={}, grace_s=1.0,
            archives=AgentArchives.of(works.home.agents), fork_server=fork_server,
        )  # fmt: skip
        assert set(fork_server.answers(60.0).values()) == {None}
    assert works.settle(run_id).status == "succeeded"
    time.sleep(0.2)
    assert works.log(run_id) == "once\n"


def test_a_killed_fork_server_costs_no_run(works: Works) -> None:
    """Its agents go on, and the next ones come from another."""
    first = works.submit("echo up; while [ ! -e go ]; do sleep 0.05; done")
    works.says(first, "up")
    server = works.scheduler.executors.here.fork_server
    assert server.process is not None
    before = server.process.pid
    os.kill(before, signal.SIGKILL)
    second = works.submit("touch go")
    assert works.settle(first, second).status == "succeeded"
    assert works.run(first).attempt == works.run(second).attempt == 1
    assert server.process.pid != before


def test_a_damaged_end_is_not_believed(works: Works) -> None:
    run_id = works.submit(BUSY)
    works.says(run_id, "up")
    os.kill(works.agent(run_id), signal.SIGKILL)
    (works.place(run_id) / "end.json").write_text('{"cause": "finished", "en')
    run = works.settle(run_id)
    assert (run.status, run.reason) == ("failed", "master-0: its agent was killed")
    assert works.end(run_id)["cause"] == "lost"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("no plan", "its folder cannot be read: {file}: No such file or directory"),
        ("junk for a plan", "{file}: the plan is damaged: it is not JSON: restore the file, or start the run again"),
        ("another plan", "{file}: the plan is damaged: replica 0 of the plan has no valid `role`: restore the file"),
        ("no folder", "its folder cannot be read: {file}: No such file or directory"),
    ],
)
def test_a_run_whose_folder_cannot_be_read_fails_and_disturbs_no_one(works: Works, damage: str, reason: str) -> None:
    run_id = works.submit(BUSY)
    other = works.submit("exit 0")
    folder = works.run_folder(run_id)
    if damage == "no plan":
        folder.plan_file.unlink()
    elif damage == "junk for a plan":
        folder.plan_file.write_bytes(b"\xff\x00")
    elif damage == "another plan":
        folder.plan_file.write_text('{"replicas": [{"resources": 7}]}')
    else:
        shutil.rmtree(folder.path)
    assert works.settle(other, run_id).status == "failed"
    assert works.run(run_id).reason.startswith(reason.format(file=folder.plan_file))
    assert works.run(other).status == "succeeded"


def test_a_running_run_whose_folder_is_removed_fails_and_its_processes_end(works: Works) -> None:
    run_id = works.submit(BUSY)
    works.says(run_id, "up")
    shutil.rmtree(works.run_folder(run_id).path)
    works.new_scheduler()
    assert works.settle(run_id).status == "failed"
    assert alive(run_id) == set()


def test_a_run_without_the_record_of_its_submission_fails_with_the_reason(works: Works) -> None:
    run_id = works.submit("exit 0")
    (works.run_folder(run_id).path / "submitted.json").unlink()
    run = works.settle(run_id)
    assert run.status == "failed"
    assert run.reason == "could not be started: submitted.json in its folder cannot be read"
