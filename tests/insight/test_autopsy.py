"""Who failed first, who followed, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.ends import FAILURES, Cause, End
from phalanx.insight.autopsy import ReplicaFailure, StackLocation, failures, first_failure, whereabouts
from phalanx.stored_plan import PlannedReplica, StoredPlan

PLAN = StoredPlan(
    (PlannedReplica("master", 0, 0), PlannedReplica("worker", 0, 1), PlannedReplica("worker", 1, 2)), wiring="plain"
)
LOST = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:2222",
]
BAD = ["Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "ValueError: bad batch"]


def end(cause: str = "error", at: float = 1.0, lines: list[str] | None = None, **more: Any) -> End:
    usual = End(Cause(cause), 1, None, "exit code 1", ended_at=at, last_lines=tuple(lines or ()))
    return usual._replace(**more)


def stopped(at: float = 9.0) -> End:
    return end("stopped", at, message="stopped", code=None)


def test_no_one_failed() -> None:
    assert first_failure(PLAN, {"master-0": end("finished"), "worker-0": stopped()}) is None
    assert first_failure(PLAN, {}) is None


def test_the_first_is_the_one() -> None:
    failed = first_failure(PLAN, {"master-0": end(at=2.0, lines=BAD), "worker-0": end(at=1.0, lines=BAD)})
    assert failed is not None
    assert (failed.replica, failed.why) == ("worker-0", "ValueError: bad batch (exit code 1)")
    assert failed.reason == "worker-0: ValueError: bad batch (exit code 1)"
    assert failed.others == {"master-0": "exit code 1, after worker-0 failed"}
    assert failed.lines == tuple(BAD)


@pytest.mark.parametrize(("cause", "of"), [("lost", FAILURES), ("stopped", (Cause.STOPPED,))], ids=["lost", "deleted"])
def test_what_was_taken_away_did_not_fail(cause: str, of: tuple[Cause, ...]) -> None:
    taken = end(cause, at=1.0, message="its pod was deleted, not by Phalanx", code=None)
    ends = {"worker-0": taken, "worker-1": stopped(), "master-0": end(at=2.0, lines=BAD)}
    failed = first_failure(PLAN, ends if cause == "lost" else {**ends, "master-0": stopped()}, of)
    assert failed is not None
    assert failed.replica == "worker-0"
    assert failed.others["worker-1"] == "stopped because of worker-0: its pod was deleted, not by Phalanx"
    if cause == "lost":
        assert failed.others["master-0"] == "exit code 1, after worker-0 ended"


def test_who_died_faster_of_its_loss_is_not_blamed() -> None:
    ends = {"master-0": end(at=1.0, lines=LOST), "worker-0": end(at=1.3, lines=BAD), "worker-1": stopped()}
    failed = first_failure(PLAN, ends)
    assert failed is not None
    assert not failed.is_symptom
    assert failed.replica == "worker-0"
    assert failed.others["worker-1"] == "stopped because worker-0 failed"


def test_all_failures_are_listed_with_the_first_failure_in_front() -> None:
    ends = {
        "master-0": end(at=1.0, lines=LOST),
        "worker-0": end("memory", at=1.4, code=None, signal=9, message="killed at 32 of 32 GiB"),
        "worker-1": end("segment", at=0.5, code=None),
    }
    found = failures(PLAN, ends, attempt=2)
    assert found == [
        ReplicaFailure("worker-0", 1, 2, 1.4, "memory", "killed at 32 of 32 GiB", log="worker-0"),
        ReplicaFailure("master-0", 0, 2, 1.0, "error", "exit code 1", log="master-0"),
    ]
    first = first_failure(PLAN, ends)
    assert first is not None
    assert first.replica == found[0].replica


def test_a_failure_that_was_recorded_for_the_attempt_is_in_front() -> None:
    ends = {"master-0": stopped(8.0), "worker-0": stopped(9.0)}
    recorded = {"attempt": 1, "replica": "worker-0", "why": "its node failed"}
    assert failures(PLAN, ends, attempt=1) == []
    assert failures(PLAN, ends, attempt=2, recorded=recorded) == []
    (found,) = failures(PLAN, ends, attempt=1, recorded=recorded)
    assert (found.replica, found.rank, found.at, found.message) == ("worker-0", 1, 9.0, "its node failed")


def test_the_failure_of_a_rank_is_in_the_log_of_its_launcher() -> None:
    lines = ["mpirun noticed that process rank 1 with PID 0 on node n exited on signal 9"]
    (found,) = failures(PLAN._replace(launch="mpirun"), {"master-0": end(lines=lines)}, attempt=1)
    assert (found.replica, found.rank, found.log) == ("worker-0", 1, "master-0")


def test_an_earlier_loss_that_was_caught_is_no_symptom() -> None:
    failed = first_failure(
        PLAN, {"master-0": end(at=1.0, lines=[*LOST, "trying again", *BAD]), "worker-0": end(at=2.0)}
    )
    assert failed is not None
    assert failed.replica == "master-0"


def test_a_killed_replica_failed_regardless_of_its_earlier_state() -> None:
    killed = end(at=2.0, lines=LOST, signal=9, code=None, message="killed by signal 9 (SIGKILL)")
    failed = first_failure(PLAN, {"master-0": end(at=1.0, lines=LOST), "worker-0": killed})
    assert failed is not None
    assert failed.replica == "worker-0"
    assert "dmesg" in failed.advice


def test_when_all_only_lost_another_that_is_said() -> None:
    failed = first_failure(PLAN, {"master-0": end(at=1.0, lines=LOST), "worker-0": end(at=2.0, lines=LOST)})
    assert failed is not None
    assert failed.is_symptom
    assert "master-0 lost its connection to another replica, but none failed by itself" in failed.advice
    early = first_failure(PLAN, {"master-0": end(at=1.0, lines=LOST), "worker-0": end("finished")})
    assert early is not None
    assert early.advice == "worker-0 had already ended: do all ranks take the same number of steps?"


def test_replicas_stopped_together_are_no_consequence_of_each_other() -> None:
    ends = {"master-0": end("stopped", at=2.0), "worker-0": end("stopped", at=1.0)}
    failed = first_failure(PLAN, ends, of=(Cause.STOPPED,))
    assert failed is not None
    assert failed.others == {}


@pytest.mark.parametrize(
    ("ended", "advice"),
    [
        (
            end(lines=[*BAD[:2], "ModuleNotFoundError: No module named 'a.b'"]),
            "install `a.b` in the Python that worker-0",
        ),
        (end(code=127, lines=["bash: line 1: pyhton: command not found"]), "`pyhton` is not on the PATH of worker-0"),
        (end(code=127, lines=["phalanx: cannot start mpirun: No such file"]), "`mpirun` is not on the PATH"),
        (
            end(code=127, lines=["phalanx: cannot enter the working folder /a b: No such file or directory"]),
            "is `/a b` on the machine of worker-0, and may its user enter it?",
        ),
        (end(lines=[*BAD[:2], "OSError: [Errno 98] Address already in use"]), "run again to get another one"),
        (end(lines=[*BAD[:2], "torch.OutOfMemoryError: CUDA out of memory."]), "smaller batches"),
        (
            end("memory", message="killed at 900 of 800 MiB", peak={"memory_mib": 900.0}),
            "request more memory: `environment.replicas.default_worker.resources.memory`; try 1280 MiB",
        ),
        (end("timeout", message="ended by its time limit of 1 s"), "`environment.timeout`"),
        (end("timeout", message="ended by the time limit of its job, 60 s"), "SBATCH_TIMELIMIT, the directive `time`"),
        (end(code=None, signal=11, message="killed by signal 11 (SIGSEGV)"), "`phalanx logs --replica worker-0`"),
    ],
)
def test_what_to_do_is_said_where_it_can_be(ended: End, advice: str) -> None:
    failed = first_failure(PLAN, {"worker-0": ended})
    assert failed is not None
    assert advice in failed.advice


def test_what_never_started_is_no_matter_of_its_python() -> None:
    failed = first_failure(
        PLAN, {"worker-0": end("setup", code=None, message="it could not start in 10 minutes: no image")}
    )
    assert failed is not None
    assert "it could not start in 10 minutes: no image" in failed.reason
    assert failed.advice == ""


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: bad"], "ValueError: bad (exit code 1)"),
        (["Traceback (most recent call last):", "KeyboardInterrupt"], "KeyboardInterrupt (exit code 1)"),
        (["Traceback (most recent call last):", "a.b.MyError: x", "and more"], "a.b.MyError: x (exit code 1)"),
        (["nothing of Python's", "Error: disk"], "exit code 1"),
        ([], "exit code 1"),
    ],
)
def test_the_error_is_reported_with_the_code(lines: list[str], why: str) -> None:
    failed = first_failure(PLAN, {"master-0": end(lines=lines)})
    assert failed is not None
    assert failed.why == why


# mpirun --------------------------------------------------------------------------------------------------------------


def test_the_rank_that_mpirun_names_is_the_replica() -> None:
    lines = [
        "[1,0]<stdout>:step 1",
        "[1,2]<stderr>:Traceback (most recent call last):",
        "[1,2]<stderr>:ValueError: bad batch",
        "mpirun detected that one or more processes exited with non-zero status, thus causing",
        "  Process name: [[38373,1],2]",
        "  Exit code:    1",
    ]
    failed = first_failure(PLAN._replace(launch="mpirun"), {"master-0": end(lines=lines)})
    assert failed is not None
    assert failed.reason == "worker-1: ValueError: bad batch (exit code 1)"
    assert failed.lines == ("Traceback (most recent call last):", "ValueError: bad batch")
    noticed = ["mpirun noticed that process rank 1 with PID 0 on node x exited on signal 9 (Killed)."]
    killed = first_failure(PLAN._replace(launch="own"), {"master-0": end(lines=noticed)})
    assert killed is not None
    assert killed.replica == "worker-0"
    nobody = first_failure(PLAN._replace(launch="mpirun"), {"master-0": end(lines=["  Process name: [[3,1],77]"])})
    assert nobody is not None
    assert nobody.replica == "master-0"


# stalls --------------------------------------------------------------------------------------------------------------

LIBRARY = '  File "/env/lib/python3.11/site-packages/torch/distributed/c10d.py", line 32 in {}'


def stack(*frames: str) -> list[str]:
    return [
        "Fatal Python error: Aborted",
        "Current thread 0x7f (most recent call first):",
        *frames,
        "Extension modules: x",
    ]


IN_COLLECTIVE = stack(
    LIBRARY.format("all_reduce"), LIBRARY.format("wrapper"), '  File "/work/train.py", line 16 in main'
)
ELSEWHERE = stack('  File "/work/load.py", line 4 in wait', '  File "/work/train.py", line 12 in main')


def test_where_a_program_was() -> None:
    assert whereabouts(IN_COLLECTIVE) == StackLocation("train.py:16", "all_reduce", serves=False)
    assert str(whereabouts(IN_COLLECTIVE)) == "train.py:16 (all_reduce)"
    assert str(whereabouts(ELSEWHERE)) == "load.py:4"
    assert str(whereabouts(IN_COLLECTIVE[2:])) == "train.py:16 (all_reduce)"
    assert whereabouts(["step 1"]) is None
    assert str(whereabouts(stack(LIBRARY.format("run")))) == "c10d.py:32"
    joined = whereabouts(stack(LIBRARY.format("join"), '  File "/work/train.py", line 3 in main'))
    assert joined is not None
    assert joined.serves


def stalled(lines: list[str], at: float = 1.0) -> End:
    return end("stalled", at, lines, code=None, signal=6, message="stalled")


def test_if_many_wait_at_one_line_the_replica_elsewhere_is_named() -> None:
    ends = {"master-0": stalled(IN_COLLECTIVE), "worker-0": stalled(ELSEWHERE, 2.0), "worker-1": stalled(IN_COLLECTIVE)}
    failed = first_failure(PLAN._replace(stall_timeout_s=30.0), ends)
    assert failed is not None
    assert failed.replica == "worker-0"
    assert failed.why == (
        "stalled: no replica wrote a line or a metric for 30 s; "
        "worker-0 at load.py:4; master-0, worker-1 at train.py:16 (all_reduce)"
    )
    assert failed.others == dict.fromkeys(("master-0", "worker-1"), "stalled, waiting for worker-0")
    assert not [line for line in failed.lines if "Extension" in line]


def test_of_two_the_one_in_its_own_code_is_waited_for() -> None:
    failed = first_failure(PLAN, {"master-0": stalled(IN_COLLECTIVE), "worker-0": stalled(ELSEWHERE)})
    assert failed is not None
    assert failed.replica == "worker-0"


def test_when_all_wait_at_one_place_no_one_is_blamed() -> None:
    failed = first_failure(PLAN, {"master-0": stalled(IN_COLLECTIVE), "worker-0": stalled(IN_COLLECTIVE)})
    assert failed is not None
    assert "all wait at the same place" in failed.advice
    assert failed.others == {"worker-0": "stalled"}


def test_the_replica_that_others_waited_for_is_named() -> None:
    ends = {"master-0": end(at=1.0, lines=LOST), "worker-0": stalled(ELSEWHERE, 4.0)}
    failed = first_failure(PLAN, ends)
    assert failed is not None
    assert failed.replica == "worker-0"
    assert "master-0 gave up waiting: RuntimeError: [gloo] Connection closed by peer" in failed.why
    assert failed.others == {"master-0": "exit code 1, waiting for worker-0"}


def test_who_raised_and_could_not_end_is_the_first() -> None:
    failed = first_failure(
        PLAN, {"master-0": stalled(IN_COLLECTIVE, 1.0), "worker-0": stalled([*BAD, *ELSEWHERE], 2.0)}
    )
    assert failed is not None
    assert (failed.replica, failed.why) == ("worker-0", "ValueError: bad batch (then stalled)")
    assert failed.lines == tuple(BAD)
    assert "it could not exit after that" in failed.advice


def test_a_port_that_is_taken_is_no_symptom() -> None:
    taken = [*BAD[:2], "DistNetworkError: Connection refused by peer: EADDRINUSE, address already in use"]
    failed = first_failure(PLAN, {"master-0": end(at=1.0, lines=taken), "worker-0": end(at=2.0, lines=LOST)})
    assert failed is not None
    assert failed.replica == "master-0"
