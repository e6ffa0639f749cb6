"""Many runs in the queue: a turn must not do more for that."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from phalanx.backends.local.capacity import Capacity
from tests.scheduler.working import Works

FEW: dict[str, Any] = {"resources": {"cpu": {"requests": 1}}}


class Work:
    """Counts SQL statements, and the files and folders of a home that are opened."""

    def __init__(self) -> None:
        self.statements = 0
        self.files = 0
        self.counting = ""
        sys.addaudithook(self._heard)  # for good: Python has no way to take one back

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self.counting and event in ("open", "os.listdir", "os.scandir") and self.counting in str(args[0]):
            self.files += 1

    def _said(self, _: str) -> None:
        self.statements += 1

    @contextmanager
    def of(self, works: Works) -> Iterator[None]:
        connection = works.store._database._connection
        self.statements = self.files = 0
        self.counting = str(works.home.path)
        connection.set_trace_callback(self._said)
        try:
            yield
        finally:
            self.counting = ""
            connection.set_trace_callback(None)

    @property
    def done(self) -> tuple[int, int]:
        return self.statements, self.files


@pytest.mark.slow
def test_a_turn_does_the_same_work_for_two_hundred_waiting_runs_as_for_twenty(works: Works) -> None:
    works.scheduler.room = Capacity(1.0, 1e6, 0)
    running = works.submit("echo up; sleep 60", **FEW)
    works.says(running, "up")
    work, done, grown = Work(), [], []
    for count in (20, 180):
        for _ in range(count):
            works.submit("exit 0", **FEW)
        for _ in range(3):
            works.scheduler.run_pass()
            works.scheduler.look_at = 0.0  # so that new folders are looked for now, and not in the turns we count
        with work.of(works):
            assert works.scheduler.run_pass() == works.store.count("status:created|running")
        done.append(work.done)
        tracemalloc.start()
        works.scheduler.run_pass()
        grown.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    (few_statements, few_files), (many_statements, many_files) = done
    assert many_statements <= few_statements
    assert many_files <= few_files < 20
    assert grown[1] < 1.5 * grown[0]
    assert len(works.scheduler.watched) <= 3
    works.discard_queue()


@pytest.mark.slow
def test_a_start_does_the_same_work_however_many_wait_behind_it(works: Works) -> None:
    works.scheduler.room = Capacity(1.0, 1e6, 0)
    running = works.submit("echo up; sleep 60", **FEW)
    works.says(running, "up")
    work, done = Work(), []
    for count in (5, 60):
        for _ in range(count):
            works.submit("exit 0", **FEW)
        for _ in range(3):
            works.scheduler.look_at = 0.0
            works.scheduler.run_pass()
        works.scheduler.room = Capacity(2.0, 1e6, 0)
        with work.of(works):
            works.scheduler.run_pass()
        works.scheduler.room = Capacity(1.0, 1e6, 0)
        assert len(works.scheduler.started) == 2
        done.append(work.done)
        works.turn_until(lambda: len(works.scheduler.started) == 1)
    assert done[1][0] <= done[0][0] + 2
    assert done[1][1] <= done[0][1] + 2
    works.discard_queue()


@pytest.mark.slow
def test_nothing_is_remembered_of_runs_that_are_over(works: Works) -> None:
    runs = [works.submit("exit 0", priority=number % 3) for number in range(12)]
    works.settle(*runs)
    assert works.scheduler.watched == {}
    works.scheduler.run_pass()
    assert works.scheduler.started == []
    assert works.home.asked_to_stop() == []


@pytest.mark.slow
def test_the_order_of_a_long_queue_is_that_of_the_store(works: Works) -> None:
    """A turn sees only the head of the queue; it must be the right one."""
    works.scheduler.room = Capacity(3.0, 1e6, 0)
    for number in range(40):
        works.submit("exit 0", priority=number % 4, **FEW)
    expected = [run.id for run in works.store.active()]
    works.scheduler.run_pass()
    first = {run.id for run in works.scheduler.started}
    assert first == set(expected[:3])
    works.discard_queue()


@pytest.mark.slow
def test_many_stops_are_heard_in_one_turn(works: Works) -> None:
    works.scheduler.room = Capacity(0.5, 1e6, 0)
    busy = works.submit("echo up; sleep 60", **FEW)
    works.says(busy, "up")
    runs = [works.submit("exit 0", **FEW) for _ in range(60)]
    for run_id in runs:
        works.run_folder(run_id).ask_to_stop("all of them")
    works.scheduler.run_pass()
    assert {works.run(run_id).status for run_id in runs} == {"stopped"}
    assert works.run(busy).status == "running"
