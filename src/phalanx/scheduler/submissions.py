"""Submissions of attempts to an engine, in threads. Each is recorded before and right after."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from phalanx.backends.contract import EngineUnavailable, JobDependency, JobRejected, TooManyTasks
from phalanx.ends import Cause, read_end
from phalanx.home import attempts
from phalanx.home.array_folder import ArrayTask
from phalanx.home.attempts import AttemptFolder
from phalanx.scheduler import submission_records
from phalanx.scheduler.engine_view import EngineView
from phalanx.scheduler.submission_records import SubmissionRecord

AT_ONCE = 8  # submissions in progress
ENOUGH = 2 * AT_ONCE  # submissions that keep the threads busy until the next pass
MOST_TASKS = 1000  # of one array
MOST_ORDERS = 60  # submissions in progress, or about to begin
COLLECT_S = 0.25  # how long a pass waits for submissions
RETRY_S = 5.0
Result = str | JobRejected | None  # the handle; a permanent error; or None to retry later


class StartRequest(NamedTuple):
    """An attempt to be started."""

    attempt_folder: AttemptFolder
    working: Path
    environment: Mapping[str, str]
    group: str | None = None  # whose trials are tasks of arrays
    is_single: bool = False  # never a task of an array
    after: tuple[JobDependency, ...] = ()  # the jobs that it waits for in the engine


class Order(NamedTuple):
    """A submission in a thread. `array`: the folder of the array that it is a task of."""

    result: Future[Result]
    began: float
    array: Path | None = None


class Submissions:
    """The submissions of one engine."""

    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.orders: dict[str, Order] = {}  # by run
        self._threads: ThreadPoolExecutor | None = None
        self.most_tasks = MOST_TASKS  # of an array, as far as the engine has accepted them
        self._retry_at: dict[str, float] = {}
        self._next_at = float("-inf")

    @property
    def is_full(self) -> bool:
        """Whether enough are in progress: other runs wait in our queue, where they can be stopped at once."""
        arrays = [order.array for order in self.orders.values() if order.array is not None]
        return len(self.orders) - len(arrays) + len(set(arrays)) >= MOST_ORDERS

    def may_begin(self, run_id: str) -> bool:
        """Whether it is time for the next submission, and for one of this run."""
        return time.monotonic() >= max(self._retry_at.get(run_id, 0.0), self._next_at)

    def begin(self, request: StartRequest) -> None:
        result = self._begun().submit(self._submit, request)
        self.orders[request.attempt_folder.run_id] = Order(result, time.monotonic())

    def begin_array(self, folder: Path, requests: Sequence[StartRequest], at_once: int | None) -> Future[list[Result]]:
        """Submit attempts as the tasks of one array, which gets this folder. It is not withdrawn for one of them."""
        results: list[Future[Result]] = [Future() for _ in requests]
        for request, result in zip(requests, results, strict=True):
            result.set_running_or_notify_cancel()
            self.orders[request.attempt_folder.run_id] = Order(result, time.monotonic(), folder)

        def submit() -> list[Result]:
            try:
                found = self._submit_array(folder, requests, at_once)
            except BaseException as fault:
                for result in results:
                    result.set_exception(fault)
                raise
            for result, one in zip(results, found, strict=True):
                result.set_result(one)
            return found

        return self._begun().submit(submit)

    def _begun(self) -> ThreadPoolExecutor:
        self._next_at = time.monotonic() + self.view.engine.submit_interval_s
        self._threads = self._threads or ThreadPoolExecutor(max_workers=AT_ONCE)
        return self._threads

    def withdraw(self, run_id: str) -> None:
        """Withdraw a submission that has not begun."""
        order = self.orders.get(run_id)
        if order is not None and order.result.cancel():
            del self.orders[run_id]

    def results(self) -> dict[str, Future[Result]]:
        """The submissions that are over, by run. They may have raised an OSError. Waits until few submissions are left,
        but not for slow ones."""
        deadline = time.monotonic() + COLLECT_S
        while len(running := self._running()) > ENOUGH and (left_s := deadline - time.monotonic()) > 0:
            wait(running, left_s, return_when=FIRST_COMPLETED)
        done = {run_id: order.result for run_id, order in self.orders.items() if order.result.done()}
        for run_id, result in done.items():
            del self.orders[run_id]
            if result.exception() is not None or result.result() is None:
                self._retry_at[run_id] = time.monotonic() + RETRY_S
        return done

    def close(self) -> None:
        """Wait for those in progress, and withdraw the others: another scheduler submits them."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None

    def _running(self) -> list[Future[Result]]:
        return [order.result for order in self.orders.values() if not order.result.done()]

    def _submit_array(self, folder: Path, requests: Sequence[StartRequest], at_once: int | None) -> list[Result]:
        """The same for the tasks of an array: all are recorded before it is submitted."""
        record = SubmissionRecord.now(str(folder))
        for request in requests:
            record.write(request.attempt_folder)
        tasks = [
            ArrayTask(one.run_folder, one.attempt, first_of(one), request.working)
            for request in requests
            for one in [request.attempt_folder]
        ]
        try:
            handles = self.view.engine.submit_array(folder, tasks, at_once, requests[0].environment)
        except JobRejected as fault:
            for request in requests:
                submission_records.remove(request.attempt_folder)
            return [fault] * len(requests)
        except TooManyTasks as fault:
            self.most_tasks = max(1, len(requests) // 2)
            if len(requests) == 1:
                self.view.fail(fault)
            return [None] * len(requests)
        except EngineUnavailable as fault:
            self.view.fail(fault)
            return [None] * len(requests)
        if len(requests) == self.most_tasks:
            self.most_tasks = min(MOST_TASKS, 2 * self.most_tasks)
        with suppress(OSError):
            for request, handle in zip(requests, handles, strict=True):
                replace(record, handle=handle).write(request.attempt_folder)
        return [*handles]

    def _submit(self, request: StartRequest) -> Result:
        """Called in a thread. Its record is written before and after, so that the job is found if this process is
        killed at any moment. Raises OSError."""
        attempt_folder = request.attempt_folder
        record = SubmissionRecord.now(after=request.after)
        record.write(attempt_folder)
        try:
            handle = self._submitted(request)
        except JobRejected as fault:
            submission_records.remove(attempt_folder)
            return fault
        except EngineUnavailable as fault:
            self.view.fail(fault)
            return None
        with suppress(OSError):  # a full disk: the job is found again by its run and attempt
            replace(record, handle=handle).write(attempt_folder)
        return handle

    def _submitted(self, request: StartRequest) -> str:
        """The handle of the job. Raises EngineUnavailable and JobRejected."""
        one, engine = request.attempt_folder, self.view.engine
        known = (one.run_folder, one.run_id, one.attempt, first_of(one))
        if not request.after:
            return engine.submit(*known, working=request.working, environment=request.environment)
        return engine.submit_after(
            *known, working=request.working, environment=request.environment, after=request.after
        )


def first_of(attempt_folder: AttemptFolder) -> int:
    """The attempt from which a run's time is counted: the first in the chain of segments that ends in this one."""
    if attempt_folder.attempt == 1:
        return 1
    before = attempt_folder.before
    ends = [read_end(before.folder(name)) for name in attempt_folder.replicas]
    if any(end is not None and end.cause == Cause.SEGMENT for end in ends):
        return int(attempts.read_facts(before).get("first", attempt_folder.attempt))
    return attempt_folder.attempt
