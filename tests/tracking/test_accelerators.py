"""Values that an accelerator is still computing: kept as they were when they were logged, read beside the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from phalanx import tracking
from phalanx.tracking import TrackedRun, heartbeat
from tests.tracking.reading import Replica, only_run, script

TRAINING = threading.get_ident()


class Tensor:
    """PyTorch's, on a device that takes its time."""

    is_cpu = False

    def __init__(self, value: float, ready: threading.Event | None = None, size: int = 1) -> None:
        self.value = value
        self.ready = ready
        self.size = size
        self.read_by: int | None = None
        self.copies = 0
        self.copied: list[Tensor] = []

    def numel(self) -> int:
        return self.size

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        self.copies += 1
        copy = Tensor(self.value, self.ready, self.size)
        self.copied.append(copy)
        return copy

    def item(self) -> float:
        if self.ready is not None:
            self.ready.wait(20)
        self.read_by = threading.get_ident()
        return self.value

    def __iadd__(self, other: float) -> Tensor:
        self.value += other
        return self

    def __float__(self) -> float:
        return self.item()


class Array:
    """JAX's."""

    def __init__(self, value: float, *, is_ready: bool) -> None:
        self.value = value
        self._is_ready = is_ready
        self.read_by: int | None = None

    def is_ready(self) -> bool:
        return self._is_ready

    def item(self) -> float:
        self.read_by = threading.get_ident()
        return self.value


class Variable:
    """TensorFlow's: an optimizer's rate, for one."""

    device = "/job:localhost/replica:0/task:0/device:GPU:0"

    def __init__(self, value: float) -> None:
        self.value = value

    def read_value(self) -> Variable:
        return Variable(self.value)

    def numpy(self) -> float:
        return self.value


@pytest.fixture(name="impatient")
def impatient_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An end that waits for half a second; and what lets the rest go on afterwards."""
    monkeypatch.setattr(heartbeat, "PATIENCE_S", 0.5)
    later = threading.Event()
    yield later
    later.set()


def test_a_tensor_is_not_read_by_the_training(run: TrackedRun, replica: Replica) -> None:
    tensor = Tensor(0.5)
    run.log(loss=tensor, step=3)
    tracking.finish()
    assert replica.points() == {"loss": [(3, 0.5)]}
    assert tensor.copied[0].read_by not in (None, TRAINING)


def test_what_is_logged_is_what_was_there_then(run: TrackedRun, replica: Replica) -> None:
    ready = threading.Event()
    total = Tensor(1.0, ready)
    for step in range(5):
        run.log(total=total, step=step)
        total += 1.0
    ready.set()
    tracking.finish()
    assert replica.points()["total"] == [(step, 1.0 + step) for step in range(5)]


def test_logging_does_not_wait(run: TrackedRun, replica: Replica) -> None:
    ready = threading.Event()
    before = time.monotonic()
    for step in range(1000):
        run.log(loss=Tensor(float(step), ready), accuracy=0.5, step=step)
    assert time.monotonic() - before < 60
    assert len(replica.values("accuracy")) == 1000  # what was known at once is there at once
    ready.set()
    tracking.finish()
    assert replica.points()["loss"] == [(step, float(step)) for step in range(1000)]


def test_values_appear_while_the_training_goes_on(run: TrackedRun, replica: Replica) -> None:
    run.log(loss=Tensor(0.5), step=1)
    deadline = time.monotonic() + 10
    while not replica.values("loss"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_time_is_that_of_the_call(run: TrackedRun, replica: Replica) -> None:
    ready = threading.Event()
    before = time.time()
    run.log(loss=Tensor(0.5, ready))
    after = time.time()
    time.sleep(0.05)
    ready.set()
    tracking.finish()
    (file,) = replica.files()
    assert before <= file.metrics["loss"].times[0] <= after


def test_a_device_that_fails_costs_its_value_alone(run: TrackedRun, replica: Replica) -> None:
    class Failing(Tensor):
        def clone(self) -> Failing:
            return self

        def item(self) -> float:
            raise RuntimeError("CUDA error: device-side assert triggered")

    class Leaving(Failing):
        def item(self) -> float:
            raise SystemExit(3)

    class OutOfMemory(Tensor):
        def clone(self) -> Tensor:
            raise MemoryError("no room for a copy")

    run.log(a=Failing(1.0), b=Leaving(2.0), c=OutOfMemory(3.0), d=Tensor(4.0), e=5.0, step=1)
    run.log(d=Tensor(6.0), step=2)
    tracking.finish()
    assert replica.points() == {"d": [(1, 4.0), (2, 6.0)], "e": [(1, 5.0)]}
    assert set(replica.dropped()) == {
        "a: CUDA error: device-side assert triggered",
        "b: 3",
        "c: no room for a copy",
    }


def test_a_device_that_hangs_does_not_hold_the_end_back(
    run: TrackedRun, replica: Replica, impatient: threading.Event
) -> None:
    run.log(loss=Tensor(1.0), step=1)
    run.log(loss=Tensor(2.0, impatient), step=2)
    run.log(loss=Tensor(3.0), step=3)
    run.log(loss=4.0, step=4)
    before = time.monotonic()
    tracking.finish()
    assert time.monotonic() - before < 60
    assert sorted(replica.points()["loss"]) == [(1, 1.0), (4, 4.0)]
    assert replica.dropped() == {"values that were not computed in time": 2}


def test_a_large_tensor_is_not_copied(run: TrackedRun, replica: Replica) -> None:
    large = Tensor(1.0, size=10**9)
    run.log(weights=large, loss=0.5)
    tracking.finish()
    assert large.copies == 0
    assert replica.points() == {"loss": [(None, 0.5)]}
    assert list(replica.dropped()) == ["weights: a Tensor of 1000000000 values is not one number"]


def test_arrays_of_jax_are_read_at_once_when_they_are_there(run: TrackedRun, replica: Replica) -> None:
    there, coming = Array(1.0, is_ready=True), Array(2.0, is_ready=False)
    run.log(there=there, coming=coming)
    assert there.read_by == TRAINING
    tracking.finish()
    assert coming.read_by not in (None, TRAINING)
    assert replica.points() == {"there": [(None, 1.0)], "coming": [(None, 2.0)]}


def test_a_variable_is_kept_as_it_was(run: TrackedRun, replica: Replica) -> None:
    rate = Variable(0.1)
    run.log(rate=rate, step=1)
    rate.value = 0.01
    tracking.finish()
    assert replica.points() == {"rate": [(1, 0.1)]}


def test_more_than_can_wait_is_counted(
    run: TrackedRun, replica: Replica, monkeypatch: pytest.MonkeyPatch, impatient: threading.Event
) -> None:
    monkeypatch.setattr(heartbeat, "MOST_WAITING", 10)
    run.log(first=Tensor(0.0, impatient))
    deadline = time.monotonic() + 10
    thread: Any = run._heartbeat
    while thread.waiting:  # until the thread waits for the device
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for step in range(15):
        run.log(loss=Tensor(float(step)), step=step)
    assert run.dropped == {"too many values waiting to be computed": 5}
    impatient.set()
    tracking.finish()
    assert replica.points()["loss"] == [(step, float(step)) for step in range(5, 15)]


def test_without_another_thread_values_are_read_at_once(
    run: TrackedRun, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    run.log(loss=Tensor(0.5), step=1)
    assert replica.points() == {"loss": [(1, 0.5)]}


def test_nothing_is_lost_at_the_end_of_a_script(tmp_path: Any) -> None:
    answer = script(
        """
import sys
from phalanx import tracking
class Tensor:
    is_cpu = False
    def __init__(self, value): self.value = value
    def detach(self): return self
    def clone(self): return Tensor(self.value)
    def item(self): return self.value
for step in range(2000):
    tracking.log(loss=Tensor(float(step)), step=step)
sys.exit(3)
""",
        PHALANX_HOME=str(tmp_path),
    )
    assert (answer.code, answer.err) == (3, "")
    run = only_run(tmp_path)
    assert run.points()["loss"] == [(step, float(step)) for step in range(2000)]
    assert run.end()["cause"] == "finished"
