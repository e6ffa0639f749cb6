"""Threads, forks, processes of other kinds, and kill -9: every completed call is found again, under its own name."""

from __future__ import annotations

import copy
import mmap
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx import tracking
from phalanx.store.series.run_series import RunSeries
from phalanx.tracking import TrackedRun, recorder
from tests.tracking.reading import Replica, clean_environment, only_run, script

# threads -----------------------------------------------------------------------------------------------------------


def test_eight_threads(run: TrackedRun, replica: Replica) -> None:
    begin = threading.Barrier(8)

    def work(number: int) -> None:
        begin.wait()
        for step in range(2000):
            run.log({f"t{number}": float(step), "shared": float(number)}, step=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    points = replica.points()
    assert set(points) == {"shared", *(f"t{number}" for number in range(8))}
    for number in range(8):
        assert points[f"t{number}"] == [(step, float(step)) for step in range(2000)]
    assert len(points["shared"]) == 16_000
    assert replica.damage() == 0


def test_threads_that_all_make_the_first_call(replica: Replica) -> None:
    """Who opens the file is whoever comes first; a name's number is of that file."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            run = tracking.start()
            begin = threading.Barrier(8)

            def work(number: int, run: TrackedRun = run, begin: threading.Barrier = begin) -> None:
                begin.wait()
                for step in range(5):
                    run.log({f"t{number}": number}, step=step)
                run.params({f"p{number}": number})

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            tracking.finish()
    finally:
        sys.setswitchinterval(usual)
    points = replica.points()
    assert {name: len(found) for name, found in points.items()} == {f"t{number}": 150 for number in range(8)}
    assert all({value for _, value in points[f"t{number}"]} == {float(number)} for number in range(8))
    assert len(replica.events("params")) == 240
    assert len(list(replica.folder.glob("*.points"))) == 30


def test_threads_with_many_new_names(run: TrackedRun, replica: Replica) -> None:
    def work(number: int) -> None:
        for name in range(500):
            run.log({f"m{name}": float(name), f"own{number}-{name}": float(name)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    points = replica.points()
    assert all([value for _, value in points[f"m{name}"]] == [float(name)] * 4 for name in range(500))
    assert len(points) == 500 + 2000


@pytest.mark.slow
def test_a_finish_amid_the_calls_of_threads(home: Path) -> None:
    """Nothing is written into files that others opened meanwhile."""
    for _ in range(10):
        run = tracking.start(name="x")
        stop = threading.Event()

        def work(run: TrackedRun = run, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                run.log(loss=1.0, step=1)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        run.finish()
        innocent = [(home / f"innocent-{number}").open("wb") for number in range(5)]
        time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        for file in innocent:
            file.close()
        assert [(home / f"innocent-{number}").stat().st_size for number in range(5)] == [0] * 5


def test_a_write_after_the_finish_goes_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was about to write when the run was finished."""
    run = tracking.start(name="x")
    run.log(loss=1.0)
    late = run._open_files()
    run.finish()
    with (home / "innocent").open("wb") as innocent:
        assert innocent.fileno() not in late
        for descriptor in late:
            os.write(descriptor, b"late")
        assert os.fstat(innocent.fileno()).st_size == 0
    monkeypatch.setattr(recorder, "AWAY_S", -1.0)
    tracking.start(name="y").finish()  # whoever is late by then was never there
    for descriptor in late:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


# forks -------------------------------------------------------------------------------------------------------------


def test_a_forked_process_writes_a_file_of_its_own(run: TrackedRun, replica: Replica) -> None:
    run.log(a=1.0)
    child = os.fork()
    if child == 0:
        run.log(b=2.0)
        tracking.log(a=5.0)
        run.params(child=1)
        os._exit(0)
    os.waitpid(child, 0)
    run.log(a=3.0)
    run.params(parent=1)
    assert sorted(replica.values("a")) == [1.0, 3.0, 5.0]
    assert replica.values("b") == [2.0]
    assert replica.params() == {"child": 1, "parent": 1}
    assert {event["pid"] for event in replica.events("open")} == {os.getpid(), child}


FORKING = """
import os, sys, time
from phalanx import tracking
run = tracking.start(name="parent")
run.log(who=0.0, step=0)
run.log(bad=None)
def work(number):
    tracking.log(who=float(number), step=number)
    tracking.start().log(also=float(number))
    tracking.params({f"p{number}": number})
"""
KINDS = {
    "os.fork, to the end": "child = os.fork()\nif child == 0: work(1); sys.exit(0)\nos.waitpid(child, 0)",
    "os.fork, os._exit": "child = os.fork()\nif child == 0: work(1); os._exit(0)\nos.waitpid(child, 0)",
    "os.fork, failing": "child = os.fork()\nif child == 0: work(1); sys.exit(3)\nos.waitpid(child, 0)",
    "os.fork twice": "if os.fork() == 0:\n  if os.fork() == 0: work(1)\n  else: os.wait()\n  os._exit(0)\nos.wait()",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_child_is_not_the_end_of_the_run(tmp_path: Path, kind: str) -> None:
    answer = script(f"{FORKING}\n{KINDS[kind]}\nrun.log(who=9.0, step=9)", "-W", "ignore", PHALANX_HOME=str(tmp_path))
    assert answer.code == 0
    run = only_run(tmp_path)
    assert sorted(run.values("who")) == [0.0, 1.0, 9.0]
    assert run.values("also") == [1.0]
    assert run.params() == {"p1": 1}
    assert run.end()["cause"] == "finished"
    assert [event["count"] for event in run.events("dropped")] == [1]  # what the parent dropped is not the child's


MULTI = """
import multiprocessing, os, sys, time
from phalanx import tracking
class Tensor:
    is_cpu = False
    def __init__(self, value): self.value = value
    def detach(self): return self
    def clone(self): return Tensor(self.value)
    def item(self): return self.value
def work(number):
    run = tracking.start()
    for step in range(50):
        run.log(step=step, **{f"child-{number}": float(step)})
    run.log(deferred=Tensor(float(number)))
    run.log(bad=None)
if __name__ == "__main__":
    run = tracking.start(name="parent")
    run.log(parent=1.0)
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work, args=(number,)) for number in range(3)]
    for child in children: child.start()
    for child in children: child.join()
    with context.Pool(2) as pool:
        pool.map(work, [3, 4])
        pool.close()
        pool.join()
    assert not run.is_finished
    run.log(parent=2.0)
    sys.exit(7 if any(child.exitcode for child in children) else 0)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_are_in_the_same_run(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(MULTI)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "train.py"), method],
        env=clean_environment(PHALANX_HOME=str(tmp_path / "home")),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path / "home")
    points = run.points()
    assert run.values("parent") == [1.0, 2.0]
    for number in range(5):
        assert points[f"child-{number}"] == [(step, float(step)) for step in range(50)]
    assert sorted(run.values("deferred")) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert run.end()["cause"] == "finished"
    assert sum(event["count"] for event in run.events("dropped")) == 5


def test_a_run_that_begins_in_a_process_of_multiprocessing_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("""
import multiprocessing, sys
def work():
    from phalanx import tracking
    tracking.log(loss=1.0)
    raise ValueError("boom")
if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
""")
    for method in ("fork", "spawn"):
        home = tmp_path / method
        subprocess.run(
            [sys.executable, str(tmp_path / "train.py"), method],
            env=clean_environment(PHALANX_HOME=str(home)),
            capture_output=True,
            check=True,
            timeout=120,
        )
        assert only_run(home).end()["message"] == "ValueError: boom"


def test_processes_that_a_script_starts_join_its_run(tmp_path: Path) -> None:
    text = """
import subprocess, sys
from phalanx import tracking
with tracking.start(name="parent") as run:
    run.log(parent=1.0)
    child = "from phalanx import tracking\\nrun = tracking.start(tags=['child'])\\nrun.log(child=2.0)\\nprint(run.id)"
    ids = {subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True).stdout.strip()}
    fails = "from phalanx import tracking\\ntracking.log(child=3.0)\\nraise ValueError"
    subprocess.run([sys.executable, "-c", fails], check=False, capture_output=True)
    assert ids == {run.id}, ids
after = subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True).stdout.strip()
assert after not in ids
"""
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert (answer.code, answer.err) == (0, "")
    parents = [path for path in (tmp_path / "runs").iterdir() if Replica(path).values("parent")]
    assert len(list((tmp_path / "runs").iterdir())) == 2
    run = Replica(parents[0])
    assert sorted(run.values("child")) == [2.0, 3.0]
    assert run.end()["cause"] == "finished"
    assert run.event("tags")["add"] == ["child"]


SENT = """
import multiprocessing, sys
from phalanx import tracking
def work(run, number):
    run.log(child=float(number))
    assert tracking.current() is run
if __name__ == "__main__":
    run = tracking.start(name="parent")
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work, args=(run, number)) for number in range(2)]
    for child in children: child.start()
    for child in children: child.join()
    run.log(parent=1.0)
    sys.exit(any(child.exitcode for child in children))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_run_may_be_sent_to_another_process(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(SENT)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(tmp_path / "train.py"), method],
        env=clean_environment(PHALANX_HOME=str(tmp_path / "home")),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    run = only_run(tmp_path / "home")
    assert sorted(run.values("child")) == [0.0, 1.0]
    assert run.values("parent") == [1.0]
    assert run.end()["cause"] == "finished"


def test_copies_of_a_run_are_the_run(run: TrackedRun, replica: Replica) -> None:
    run.log(loss=1.0)
    run.params(a=1)
    run.start_heartbeat()  # a thread and its locks
    assert copy.copy(run) is run
    assert copy.deepcopy({"run": run})["run"] is run
    assert pickle.loads(pickle.dumps(run)) is run
    tracking.finish()
    again = pickle.loads(pickle.dumps(run))
    again.log(loss=2.0)
    assert (again.id, again.folder, again.is_managed) == (run.id, run.folder, True)
    assert sorted(replica.values("loss")) == [1.0, 2.0]


# many --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_64_processes_of_8_replicas_at_once(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "abc"
    text = """
import os, sys
from phalanx import tracking
number = int(sys.argv[1])
sys.stdin.read()
for step in range(2000):
    tracking.log(step=step, **{f"p{number}": float(step), "all": float(number)})
"""
    processes = []
    for number in range(64):
        replica = Replica(run, f"worker-{number % 8}").make()
        processes.append(
            subprocess.Popen(
                [sys.executable, "-S", "-c", text, str(number)],
                env=clean_environment(**replica.environment()),
                stdin=subprocess.PIPE,
            )
        )
    for process in processes:  # all at once
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(120) for process in processes] == [0] * 64
    series = RunSeries(run)
    assert series.names() == sorted(["all", *(f"p{number}" for number in range(64))])
    for number in range(64):
        (line,) = series.series(f"p{number}")
        assert list(line.steps) == list(range(2000))
        assert line.replica == f"worker-{number % 8}"
    assert sum(len(line.values) for line in series.series("all")) == 64 * 2000
    assert sum(Replica(run, f"worker-{number}").damage() for number in range(8)) == 0


# kill -9 -----------------------------------------------------------------------------------------------------------

KILLED = """
import mmap, os, struct, sys
from phalanx import tracking
with open(sys.argv[1], "r+b") as stream:
    count = mmap.mmap(stream.fileno(), 8)
log, step = tracking.start().log, 0
while True:
    log(step=step, **{f"m{step % 40}": float(step)} if step % 3 else {"a": 1, "b": float(step)})
    step += 1
    count[:8] = struct.pack("<Q", step)
"""


@pytest.mark.slow
def test_no_completed_call_is_lost_whenever_it_is_killed(tmp_path: Path) -> None:
    """The child tells after each call, by memory that outlives it, how many it has made."""
    chance = random.Random(5)
    rounds = 12
    for number in range(rounds):
        replica = Replica(tmp_path / "runs" / f"r{number}").make()
        shared = tmp_path / f"count-{number}"
        shared.write_bytes(bytes(8))
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", KILLED, str(shared)], env=clean_environment(**replica.environment())
        )
        with shared.open("r+b") as stream, mmap.mmap(stream.fileno(), 8) as count:
            aim = chance.choice([1, 5, 100, 3000])
            while struct.unpack("<Q", count[:8])[0] < aim:
                time.sleep(0.0005)
            time.sleep(chance.random() * 0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            (made,) = struct.unpack("<Q", count[:8])
        steps = sorted({step for points in replica.points().values() for step, _ in points if step is not None})
        assert steps[:made] == list(range(made)), f"{made} calls were made"
        assert len(steps) <= made + 1
        assert all(value == step for name, points in replica.points().items() for step, value in points if name != "a")


# what others do with descriptors -------------------------------------------------------------------------------------


def test_a_program_that_is_started_does_not_hold_our_files(run: TrackedRun, replica: Replica) -> None:
    run.log(loss=1.0)
    run.params(a=1)
    listed = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], check=True, capture_output=True, text=True, close_fds=False
    ).stdout
    assert str(replica.folder) not in listed


def test_a_file_of_the_same_process_number_is_not_written_to(replica: Replica) -> None:
    """A container's processes all have the same few numbers."""
    other = replica.folder / f"client-{os.getpid()}.points"
    other.write_bytes(b"another's")
    (replica.folder / f"client-{os.getpid()}.events").write_bytes(b"another's")
    run: Any = tracking.start()
    run.log(loss=1.0)
    run.params(a=1)
    assert other.read_bytes() == b"another's"
    assert (replica.folder / f"client-{os.getpid()}-1.points").exists()
    assert replica.values("loss") == [1.0]
    assert replica.params() == {"a": 1}
