"""Functions and files that run as runs on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx import RunFailed
from phalanx.errors import CallError, SpecErrors
from phalanx.home.home import Home, default_home
from tests.test_imports import python_3_8

PATIENCE_S = 60.0


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def folder_of(run: Any) -> Path:
    return Home(default_home()).run(run.id).path


def test_the_result_of_a_function_comes_back(training: Any) -> None:
    run = phalanx.submit(training.add, 2, b=40, name="sum", tags=["demo"], env={"COLOR": "blue"}, project="p")
    assert run.result(PATIENCE_S) == 42
    assert (run.state, run.done(), run.exception(), run.cancel()) == ("succeeded", True, None, False)
    assert run.stdout() == "adding 2 40 in rank 0\n"
    assert (run.record.name, run.record.tags, run.record.project) == ("sum", ("demo",), "p")
    assert repr(run) == f"<run {run.id} (sum) succeeded: finished>"
    assert phalanx.attach("sum").results() == [42]
    kept = [*(folder_of(run) / "function").iterdir(), *(folder_of(run) / "outputs" / "function").iterdir()]
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600, 0o600]


def test_a_replaced_result_is_refused_before_it_is_unpickled(training: Any, tmp_path: Path) -> None:
    first, second = phalanx.submit(training.add, 1), phalanx.submit(training.add, 2)
    assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == (2, 3)
    path = folder_of(first) / "outputs" / "function" / "rank-0.attempt-1"
    original = path.read_bytes()
    evil = b"cos\nsystem\n(S'touch " + os.fsencode(tmp_path / "evil") + b"'\ntR."
    theirs = (folder_of(second) / "outputs" / "function" / "rank-0.attempt-1").read_bytes()
    for data in (evil, original[: original.rindex(b"\n") + 1] + evil, theirs):
        path.write_bytes(data)
        with pytest.raises(RunFailed, match=r"outputs/function/rank-0.attempt-1 of run \w+ is refused"):
            phalanx.attach(first.id).result()
    path.unlink()
    outside = tmp_path / "outside"
    outside.write_bytes(original)
    path.symlink_to(outside)
    with pytest.raises(RunFailed, match="ended without a result of rank 0"):
        phalanx.attach(first.id).result()
    assert not (tmp_path / "evil").exists()


def test_a_replaced_call_is_refused_by_the_run(training: Any) -> None:
    run = phalanx.submit(training.add, 1, after=[phalanx.submit(training.wait_for, "go").id])
    (path,) = (folder_of(run) / "function").iterdir()
    path.write_bytes(path.read_bytes() + b" ")
    Path("go").touch()
    with pytest.raises(RunFailed, match=f"run {run.id}: .*failed first"):
        run.result(PATIENCE_S)
    assert "the call of this run cannot be read: its content is not the one that was submitted" in run.stdout()


@pytest.mark.filterwarnings("ignore:requests more than this machine has")
def test_the_exception_of_the_rank_that_failed_first_is_raised_with_its_traceback(training: Any) -> None:
    run = phalanx.submit(training.fail_in, 3, workers=4)
    with pytest.raises(training.Unlucky, match="no luck") as raised:
        run.result(PATIENCE_S)
    cause = raised.value.__cause__
    assert raised.value.rank == 3
    assert isinstance(cause, RunFailed)
    assert (cause.replica, cause.rank, cause.host, cause.run_id) == ("worker-2", 3, socket.gethostname(), run.id)
    assert f"run {run.id}: worker-2 (rank 3) on {socket.gethostname()} failed first: " in str(cause)
    assert str(cause).endswith("training.Unlucky: (3, 'no luck')")
    assert cause.traceback is not None
    assert "rank_call.py" not in cause.traceback
    assert "in fail_in\n" in cause.traceback


@pytest.mark.filterwarnings("ignore:requests more than this machine has")
@pytest.mark.slow
def test_every_rank_has_a_result(training: Any) -> None:
    with pytest.warns(UserWarning, match="requests more than this machine has") as warned:
        run = phalanx.submit(training.rank_of, workers=3, cpus=1000)
    assert warned[0].filename == __file__
    assert run.cancel()
    assert phalanx.submit(training.rank_of, workers=3).results(PATIENCE_S) == [0, 1, 2]


@pytest.mark.slow
def test_a_run_without_an_exception_fails_with_its_reason(training: Any) -> None:
    left, odd = phalanx.submit(training.leave, 7), phalanx.submit(training.unpicklable)
    with pytest.raises(RunFailed, match=r"master-0 \(rank 0\) on .* failed first: .*7"):
        left.result(PATIENCE_S)
    with pytest.raises(TypeError, match="the result cannot be pickled"):
        odd.result(PATIENCE_S)
    assert phalanx.submit(training.leave, 0).result(PATIENCE_S) is None


def test_a_run_can_be_waited_for_and_canceled(training: Any) -> None:
    run = phalanx.submit(training.wait_for, "never", timeout="1h")
    assert run.wait(0.01) is False
    with pytest.raises(TimeoutError, match=f"run {run.id} has not ended after 0.01 s"):
        run.result(0.01)
    assert run.cancel()
    with pytest.raises(RunFailed, match="stopped: canceled from Python"):
        run.result(PATIENCE_S)
    assert run.state == "stopped"


def test_a_closure_runs_and_results_can_be_awaited(training: Any) -> None:
    factor = 3
    run = phalanx.submit(lambda x: {"product": factor * x}, 14)

    async def results() -> Any:
        return await asyncio.gather(run, run.awaitable().result(), run.awaitable().exception())

    assert asyncio.run(results()) == [{"product": 42}, {"product": 42}, None]


def test_a_batch_has_its_results_in_order(training: Any) -> None:
    batch = phalanx.map(training.add, [{"a": 1}, {"a": 2, "b": 5}, (3, 4)], concurrency=2, name="sums")
    assert batch.results(PATIENCE_S) == [2, 7, 7]
    again = phalanx.attach(batch.id)
    assert [run.id for run in again] == [run.id for run in batch]
    assert (len(again), again[1].result(), again.state) == (3, 7, "succeeded")
    assert phalanx.attach(batch[2].id).result() == 7
    assert repr(batch) == f"<batch {batch.id} of 3 runs: succeeded>"


@pytest.mark.slow
def test_a_failed_call_of_a_batch_does_not_end_the_others(training: Any) -> None:
    batch = phalanx.map(training.fail_in, [(0,)], concurrency=1)
    with pytest.raises(training.Unlucky):
        batch.results(PATIENCE_S)
    waiting = phalanx.map(training.wait_for, [("never",), ("never",)], concurrency=1)
    assert waiting[1].state == "created"
    with pytest.raises(CallError, match=f"waits in batch {waiting.id}: cancel the batch"):
        waiting[1].cancel()
    assert waiting.cancel()
    for run in waiting:
        with pytest.raises(RunFailed, match="stopped"):
            run.result(PATIENCE_S)


def test_futures_work_with_the_standard_library(training: Any) -> None:
    with phalanx.Executor(tags=["pool"]) as pool:
        some = [pool.submit(training.add, number) for number in range(2)]
        bad, endless = pool.submit(training.fail_in, 0), pool.submit(training.wait_for, "never")
        assert sorted(one.result() for one in futures.as_completed(some, PATIENCE_S)) == [1, 2]
        assert isinstance(bad.exception(PATIENCE_S), training.Unlucky)
        until(endless.running)
        assert endless.cancel()
        done, rest = futures.wait([bad, endless], PATIENCE_S)
        assert (len(done), len(rest), endless.cancelled(), endless.cancel()) == (2, 0, True, True)
        assert pool.submit(training.add, a=1).run.record.tags == ("pool",)

        async def wrapped() -> Any:
            return await asyncio.wrap_future(pool.submit(training.add, 5))

        assert asyncio.run(wrapped()) == 6
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(training.add, 1)


NOTEBOOK = """
import phalanx, sys, training
print(phalanx.submit(training.wait_for, sys.argv[1], name="survivor").id, flush=True)
sys.stdin.read()
"""


def test_after_kill_9_of_the_submitting_process_nothing_is_lost(training: Any, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK, str(tmp_path / "go")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    (tmp_path / "go").touch()
    assert phalanx.attach(run_id).result(PATIENCE_S) == "came"


def test_a_checkpoint_says_what_the_next_attempt_runs(training: Any, tmp_path: Path) -> None:
    started = tmp_path / "started"
    run = phalanx.submit(training.Counter(), 5, str(started), max_restarts=1)
    until(lambda: started.exists() and started.read_text())
    os.kill(int(started.read_text()), signal.SIGUSR1)
    assert run.result(PATIENCE_S) == (5, 2)
    assert run.record.attempt == 2


def test_a_file_runs_and_its_record_is_the_result(training: Any) -> None:
    command = "echo {{ lr }} {{ version }}; exit {{ code }}"
    params = "params: {lr: 1, version: x}"
    Path("file.yml").write_text(f"version: 1\nkind: experiment\n{params}\nrun: {{cmd: '{command}'}}\n")
    run = phalanx.run("file.yml", lr=0.1, version="1.10", params={"code": 0}, name="from-python", timeout="5m")
    record = run.result(PATIENCE_S)
    assert (record.status, record.name, record.params["version"]) == ("succeeded", "from-python", "1.10")
    assert run.stdout() == "0.1 1.10\n"
    with pytest.raises(RunFailed, match=r"failed first: .*exit code 3"):
        phalanx.run("file.yml", code=3).result(PATIENCE_S)
    with pytest.raises(SpecErrors, match="unknown param `code`"):
        phalanx.run("file.yml")
    with pytest.raises(CallError, match=r"cannot read missing.yml"):
        phalanx.run("missing.yml")
    with pytest.raises(CallError, match="has no results: it is not the run of a function"):
        run.results()


@pytest.mark.slow
def test_a_clone_of_a_functions_run_runs_the_same_call(training: Any) -> None:
    run = phalanx.submit(training.add, 20, 22)
    run.result(PATIENCE_S)
    call = [sys.executable, "-c", "from phalanx.cli import main; main()", "restart", run.id, "--json"]
    clone = json.loads(subprocess.run(call, capture_output=True, check=True).stdout)
    assert (clone["original"], phalanx.attach(clone["id"]).result(PATIENCE_S)) == (run.id, 42)


def test_a_run_in_a_copy_of_the_code_has_the_call_beside_it(training: Any) -> None:
    """As on Kubernetes, where pods get the code and nothing else of the run's folder."""
    run = phalanx.submit(training.add, 20, 22, snapshot=True)
    assert run.result(PATIENCE_S) == 42
    assert not (folder_of(run) / "function").exists()
    assert phalanx.attach(run.id).result() == 42


@pytest.mark.slow
def test_a_function_runs_in_python_3_8_which_has_the_archive_only(training: Any) -> None:
    old = python_3_8()
    if old is None:
        pytest.skip("there is no Python 3.8")
    run, value = phalanx.submit(training.version, python=old), phalanx.submit(lambda: 1, python=old)
    assert run.result(PATIENCE_S) == (3, 8)
    with pytest.raises(RuntimeError, match=r"by value from Python 3\.\d+, and this is Python 3.8: use the same"):
        value.result(PATIENCE_S)
