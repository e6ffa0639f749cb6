"""The agent of a TrainJob's pod: it prepares and runs the replica once, however often its container is restarted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent import train_job
from tests.agent.pods import Pod
from tests.agent.running import wait_for
from tests.agent.test_zip import interpreters
from tests.leftovers import PATIENCE_S, marked

PREPARE, RUN = "--train-job prepare", "--train-job run"
AT_ONCE = "import phalanx.agent.train_job as t; t.HELD_S = 0.0"
MEMBERS = ("master-0", "worker-0", "worker-1")


def pod_in(root: Path, command: str, **place: Any) -> Pod:
    pod = Pod(root, command, **{"code": {"kind": "none", "working": str(root)}, **place})
    (root / "shm").mkdir()
    return pod


@pytest.mark.parametrize("python", interpreters())
def test_it_prepares_and_runs_in_one_container(tmp_path: Path, python: str) -> None:
    pod = pod_in(tmp_path, 'echo "$VIRTUAL_ENV"; cat prepared; exit 3', steps=["echo once >> prepared"])
    said = pod.run(PREPARE, python=python, PHALANX_RUN_TOKEN="phr_secret")
    assert (said.code, said.err) == (3, "")
    assert pod.log().decode().split() == [str(tmp_path / "run/.phalanx-build/master-0.1/venv"), "once"]
    assert b"phr_secret" not in said.out


def test_without_anything_to_prepare_it_only_runs(tmp_path: Path) -> None:
    pod = pod_in(tmp_path, "echo ran", steps=["touch prepared"])
    assert pod.run(RUN).code == 0
    assert pod.log() == b"ran\n"
    assert not (tmp_path / "prepared").exists()


@pytest.mark.slow
def test_what_cannot_be_prepared_is_not_run_and_is_reported_again(tmp_path: Path) -> None:
    pod = pod_in(tmp_path, "echo ran", steps=["exit 5"])
    said = pod.run(PREPARE)
    assert said.code == 78
    assert pod.end()["cause"] == "setup"
    again = pod.run(PREPARE, before=AT_ONCE)
    assert again.code == 1
    assert again.files()["master-0", "end.json"] == said.files()["master-0", "end.json"]


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 2])
def test_what_has_ended_is_not_started_again_by_a_kubelet(tmp_path: Path, index: int) -> None:
    """A JobSet restarts containers when its runtime does not say otherwise, and a TrainJob cannot."""
    workers = {"replicas": {"n_workers": 2}}
    pod = pod_in(tmp_path, "echo ran | tee -a times; exit 3", environment=workers, members=MEMBERS)
    pod.plan["meets"] = []
    pod.write()
    variables = {"JOB_COMPLETION_INDEX": str(index), "PHALANX_POD": "me"}
    first, again = pod.run(PREPARE, **variables), pod.run(PREPARE, before=AT_ONCE, **variables)
    assert (first.code, again.code, again.err) == (3, 1, "")
    name = MEMBERS[index]
    assert json.loads(again.files(name)[name, "end.json"])["code"] == 3
    assert first.files(name)[name, "log"] == again.files(name)[name, "log"]
    assert (tmp_path / "times").read_text() == "ran\n"
    assert json.loads((tmp_path / "termination-log").read_text())["ends"][name]["code"] == 3


def test_what_was_killed_is_not_started_again_either(tmp_path: Path) -> None:
    pod = pod_in(tmp_path, "echo ran")
    (tmp_path / "shm" / train_job.MARKER).touch()
    said = pod.run(PREPARE, before=AT_ONCE)
    assert (said.code, said.out) == (1, b"")
    assert said.err == "phalanx: what ran in this pod has ended, and is not started again\n"


def test_a_plan_that_cannot_be_read_does_not_have_the_container_restarted_for_ever(tmp_path: Path) -> None:
    pod = pod_in(tmp_path, "true")
    (tmp_path / "job" / "plan.json.gz").unlink()
    assert pod.run(PREPARE).code == 78
    said = pod.run(PREPARE, before=AT_ONCE)
    assert said.code == 1
    assert "cannot read the run's plan" in said.err
    assert "not started again" in said.err


@pytest.mark.slow
def test_without_shared_memory_it_runs(tmp_path: Path) -> None:
    pod = pod_in(tmp_path, "echo ran")
    (tmp_path / "shm").rmdir()
    assert pod.run(RUN).code == 0
    assert pod.log() == b"ran\n"


@pytest.mark.parametrize("is_ended", [True, False])
def test_who_is_restarted_waits_to_be_removed(tmp_path: Path, is_ended: bool) -> None:
    pod = pod_in(tmp_path, "true")
    if is_ended:
        assert pod.run(RUN).code == 0
    (tmp_path / "shm" / train_job.MARKER).touch()
    said, faults = tmp_path / "out", tmp_path / "err"
    with marked() as here, said.open("wb") as out, faults.open("wb") as err:
        process = here.start(pod.command(RUN), pod.variables(), stdout=out, stderr=err)
        wait_for(lambda: b"not started again" in faults.read_bytes() or b"end.json" in said.read_bytes())
        assert process.poll() is None
        process.terminate()
        assert process.wait(PATIENCE_S) == 143
        assert here.left() == []


# signals -------------------------------------------------------------------------------------------------------------

AT_A_FORK = """
import os, signal, sys
me, left = os.getpid(), {number}
def watch(frame, event, called):
    global left
    if event in ("c_call", "c_return") and called.__name__ in ("fork", "fork_exec") and os.getpid() == me:
        left -= 1
        if left == 0:
            open("told", "w").close()
            os.kill(me, signal.SIGTERM)
sys.setprofile(watch)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["--prepare", "--pod", PREPARE])
def test_asked_to_end_right_before_or_after_it_starts_a_process_it_leaves_none(tmp_path: Path, mode: str) -> None:
    for number in count(1):
        root = tmp_path / str(number)
        pod = pod_in(root, "echo > running; sleep 600", steps=["true"])
        with marked() as here:
            process = here.start(pod.command(mode, before=AT_A_FORK.format(number=number)), pod.variables(), cwd=root)
            here.wait_for_any(process, root / "running")
            if not (root / "told").exists():  # there were no more
                break
            assert process.wait(PATIENCE_S) == 143
            assert here.left() == []
    assert number > {"--prepare": 6, "--pod": 2, PREPARE: 8}[mode]


HOPPING = """
import os, time
until, hops = time.monotonic() + 20.0, os.open("hops", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while time.monotonic() < until:
    os.write(hops, b".")
    if os.fork():
        os._exit(0)
"""  # a process that is always another one


@pytest.mark.slow
def test_a_step_that_starts_processes_all_the_time_is_ended_with_them(tmp_path: Path) -> None:
    (tmp_path / "hop.py").write_text(HOPPING)
    hops = tmp_path / "hops"
    pod = pod_in(tmp_path, "true", steps=[f"{sys.executable} hop.py & {sys.executable} hop.py & sleep 600"])
    with marked() as here:
        process = here.start(pod.command(PREPARE), pod.variables(), cwd=tmp_path)
        wait_for(lambda: hops.exists() and hops.stat().st_size > 20)
        process.terminate()
        assert process.wait(PATIENCE_S) == 143
        size = hops.stat().st_size
        time.sleep(0.2)
        assert hops.stat().st_size == size


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="only root makes a namespace")
def test_as_the_first_process_of_all_it_hears_also_while_it_prepares(tmp_path: Path) -> None:
    pod = pod_in(tmp_path, "true", steps=["echo > ready; sleep 600"])
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with marked() as here:
        process = here.start([*unshare, *pod.command(PREPARE)], pod.variables(), cwd=tmp_path)
        wait_for((tmp_path / "ready").exists)
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert here.left() == []
