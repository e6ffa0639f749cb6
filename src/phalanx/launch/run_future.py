"""A run that was started from Python, and its result: `phalanx.submit(…)` returns one."""

from __future__ import annotations

import asyncio
import pickle
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, overload

from phalanx.errors import CallError, RunFailed, SystemFault
from phalanx.launch.call_files import COMMAND
from phalanx.launch.display import LiveDisplay, mime_bundle, text_of
from phalanx.launch.places import warn_caller
from phalanx.store.statuses import Status
from phalanx.tracking.calls import sealed_files
from phalanx.tracking.calls.sealed_files import UntrustedFile

if TYPE_CHECKING:
    from phalanx.launch.place_choice import PlaceChoice
    from phalanx.launch.places import FailedReplica, Place
    from phalanx.store import Run

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
_CALL = re.compile(re.escape(COMMAND) + r" ([0-9a-f]{64})")


class RunFuture:
    """A run in a home or on a server. Any thread can use it, and any process can make it again: `phalanx.attach(id)`.

    The run does not depend on this process: it goes on when the process ends.
    """

    def __init__(self, place: PlaceChoice, run: Run | str, digest: str | None = None, batch: str | None = None) -> None:
        """`digest`: of the call file of a function; `batch`: the group that the run is a part of."""
        self._place = place
        self._last = None if isinstance(run, str) else run
        self._digest = digest
        self._batch = batch
        self._is_away = False
        self.id = run if isinstance(run, str) else run.id

    # status ----------------------------------------------------------------------------------------------------------

    @property
    def record(self) -> Run:
        """The record of the run, as it is now. Raises CallError if it is gone, or a part of a batch that waits."""
        found = self._look()
        if found is None:
            raise CallError(f"run {self.id} does not exist yet: it is one of batch {self._batch}, and waits for others")
        return found

    @property
    def state(self) -> str:
        """The status of the run: `created`, `running`, `succeeded`, `failed`, `stopped` and so on."""
        found = self._look()
        return Status.CREATED if found is None else found.status

    def done(self) -> bool:
        """Whether the run has ended, in any way."""
        found = self._look()
        return found is not None and found.is_done

    def _look(self) -> Run | None:
        """None for a run of a batch that has not been made yet. One that never will be has the end of its batch."""
        if self._last is not None and self._last.is_done:
            return self._last
        place = self._place.open()
        found = place.look(self.id)
        if found is None and self._batch is not None:
            batch = place.look(self._batch)
            if batch is not None and batch.is_done:
                found = place.look(self.id) or batch._replace(id=self.id, status=Status.STOPPED)
        elif found is None:
            raise CallError(f"run {self.id} no longer exists in {self._place}")
        self._last = found
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended, or `timeout` seconds. Returns whether it has ended. In a notebook, its status,
        metrics and log are shown meanwhile. An interrupt ends the waiting, not the run."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with LiveDisplay.open(self) as screen:
            for pause_s in pauses():
                if self._is_over():
                    return True
                screen.update()
                left_s = pause_s if deadline is None else min(pause_s, deadline - time.monotonic())
                if left_s <= 0:
                    return False
                time.sleep(left_s)
        raise AssertionError("the pauses have no end")

    def _is_over(self) -> bool:
        """As `done`, for loops that wait: a server that is away for a while does not end them."""
        try:
            over = self.done()
        except SystemFault as fault:
            if not fault.transient:
                raise
            if not self._is_away:
                warn_caller(f"{fault}; trying again")
            self._is_away = True
            return False
        self._is_away = False
        return over

    def cancel(self) -> bool:
        """Request the stop of the run. Returns False if it has already ended."""
        found = self._look()
        if found is not None and found.is_done:
            return False
        place = self._place.open()
        if found is None:
            raise CallError(f"run {self.id} waits in batch {self._batch}: cancel the batch")
        place.stop(found)
        return True

    # results ---------------------------------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned in rank 0; for a run of a file, its record. Waits for the end.

        Raises the exception of the function in the rank that failed first: its cause is a RunFailed with replica, rank,
        host and the remote traceback. If there is none (killed, stopped, out of memory), raises the RunFailed itself.
        Raises TimeoutError after `timeout` seconds.
        """
        run = self._ended(timeout)
        return run if self._call_digest(run) is None else self._value(run, 0)

    def results(self, timeout: float | None = None) -> list[Any]:
        """What the function returned in every rank. Waits and raises like `result`."""
        run = self._ended(timeout)
        if self._call_digest(run) is None:
            raise CallError(f"run {run.id} has no results: it is not the run of a function")
        return [self._value(run, rank) for rank in self._place.open().ranks(run)]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that `result` raises; None if the run succeeded. Raises TimeoutError."""
        if not self.wait(timeout):
            raise self._timeout(timeout)
        run = self.record
        return None if run.status == Status.SUCCEEDED else self._fault(run)

    def _ended(self, timeout: float | None) -> Run:
        """The run, if it has succeeded. Raises what `result` raises."""
        fault = self.exception(timeout)
        if fault is not None:
            raise fault
        return self.record

    def _timeout(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"run {self.id} has not ended after {timeout} s: it is {self.state}")

    def _call_digest(self, run: Run) -> str | None:
        """The digest of the function's call file; None for a run of a file."""
        if self._digest is None:
            found = _CALL.search(self._place.open().spec(run))
            self._digest = found.group(1) if found is not None else ""
        return self._digest or None

    def _value(self, run: Run, rank: int) -> Any:
        found = self._sealed(run, rank)
        if found is None or found.header["kind"] != sealed_files.RESULT:
            raise RunFailed(f"run {run.id} ended without a result of rank {rank}", run.id, rank=rank)
        return pickle.loads(found.body)  # noqa: S301 - its seal was checked

    def _sealed(self, run: Run, rank: int) -> sealed_files.SealedFile | None:
        """The result or exception of a rank, after its seal was checked; None if there is none. Raises RunFailed for a
        file that the run did not write, CallError if its key is not known."""
        digest = self._call_digest(run)
        if digest is None:
            return None
        place = self._place.open()
        name = sealed_files.result_name(rank, run.attempt)
        data = place.read(run, f"outputs/{name}")
        if data is None:
            return None
        try:
            return sealed_files.unseal(
                place.call_record(run, digest).key, data, run=run.id, attempt=run.attempt, rank=rank
            )
        except UntrustedFile as fault:
            raise RunFailed(f"the file outputs/{name} of run {run.id} is refused: {fault}", run.id, rank=rank) from None

    def _fault(self, run: Run) -> BaseException:
        """The exception of the rank that failed first, with a RunFailed as its cause, or that alone."""
        first = self._place.open().failure(run) if run.status == Status.FAILED else None
        if first is None:
            return RunFailed(f"run {run.id} {run.status}: {run.reason}", run.id)
        found = None
        if first.rank is not None:
            try:
                found = self._sealed(run, first.rank)
            except RunFailed as refused:
                return refused
            except CallError:  # submitted elsewhere: the reason is known, the exception is not
                found = None
        failed = _run_failed(run, first, None if found is None else found.header.get("traceback"))
        if found is None or not found.body or found.header["kind"] != sealed_files.EXCEPTION:
            return failed
        with suppress(Exception):  # its class may not exist here
            fault = pickle.loads(found.body)  # noqa: S301 - its seal was checked
            if isinstance(fault, BaseException):
                fault.__cause__ = failed
                return fault
        return failed

    # logs and display ------------------------------------------------------------------------------------------------

    def stdout(self, rank: int | None = None) -> str:
        """What all ranks, or one, printed in the last attempt: standard output and standard error in one text."""
        return "".join(f"{line}\n" for line in self._lines(None, rank))

    def _lines(self, tail: int | None, rank: int | None = None) -> list[str]:
        found = self._look()
        return [] if found is None else self._place.open().lines(found, tail, rank)

    def snapshot(self, tail: int, points: int) -> tuple[Run | None, list[str], dict[str, Sequence[float]]]:
        """The record, the last lines of the log and values of metrics, to be shown."""
        found = self._look()
        if found is None:
            return None, [], {}
        place = self._place.open()
        names = place.metrics(found)[:3]
        return found, place.lines(found, tail, None), {name: place.values(found, name, points) for name in names}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return mime_bundle(self)

    def __repr__(self) -> str:
        return text_of(self)

    # asyncio ---------------------------------------------------------------------------------------------------------

    def awaitable(self) -> AwaitableRun:
        """The same with coroutines: `await run.awaitable().result()`."""
        return AwaitableRun(self)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.awaitable().result().__await__()


class AwaitableRun:
    """`wait`, `result`, `results` and `exception` of a run as coroutines."""

    def __init__(self, run: RunFuture) -> None:
        self.run = run

    async def wait(self) -> None:
        for pause_s in pauses():
            if await asyncio.to_thread(self.run._is_over):
                return
            await asyncio.sleep(pause_s)

    async def result(self) -> Any:
        return await self._then(self.run.result)

    async def results(self) -> list[Any]:
        found: list[Any] = await self._then(self.run.results)
        return found

    async def exception(self) -> BaseException | None:
        found: BaseException | None = await self._then(self.run.exception)
        return found

    async def _then(self, get: Callable[[], Any]) -> Any:
        await self.wait()
        return await asyncio.to_thread(get)


class RunBatch(Sequence[RunFuture]):
    """The runs of `phalanx.map`, in the order of their arguments. `id` is that of their group."""

    def __init__(self, place: PlaceChoice, group: Run, digest: str, runs: Sequence[RunFuture]) -> None:
        self._place = place
        self._digest = digest
        self._runs = tuple(runs)
        self._whole = RunFuture(place, group, "")
        self.id = group.id

    @overload
    def __getitem__(self, index: int) -> RunFuture: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RunFuture]: ...

    def __getitem__(self, index: int | slice) -> RunFuture | Sequence[RunFuture]:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RunFuture]:
        return iter(self._runs)

    @property
    def state(self) -> str:
        return self._whole.state

    def done(self) -> bool:
        """Whether all runs have ended."""
        return self._whole.done()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all runs have ended, or `timeout` seconds. Returns whether they have."""
        return self._whole.wait(timeout)

    def results(self, timeout: float | None = None) -> list[Any]:
        """What the function returned for each of its arguments. Waits for all, then raises the exception of the first
        that failed. Raises TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError(f"batch {self.id} has not ended after {timeout} s")
        return [run.result() for run in self._runs]

    def cancel(self) -> bool:
        """Request the stop of all runs that have not ended. Returns False if all have ended."""
        return self._whole.cancel()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return mime_bundle(self._whole)

    def __repr__(self) -> str:
        return f"<batch {self.id} of {len(self)} runs: {self.state}>"


def _run_failed(run: Run, first: FailedReplica, traceback: str | None) -> RunFailed:
    rank = "" if first.rank is None else f" (rank {first.rank})"
    host = "" if first.host is None else f" on {first.host}"
    reason = run.reason.removeprefix(f"{first.replica}: ")
    text = f"run {run.id}: {first.replica}{rank}{host} failed first: {reason or first.message}"
    return RunFailed(text, run.id, replica=first.replica, rank=first.rank, host=first.host, traceback=traceback)


def pauses() -> Iterator[float]:
    """Seconds between two looks: at first short, then longer."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)


def open_run(place: Place, choice: PlaceChoice, run: Run) -> RunFuture | RunBatch:
    """The run of a record; a batch, for a group of calls."""
    future = RunFuture(choice, run, batch=run.group)
    digest = future._call_digest(run)
    if run.kind != "group" or digest is None:
        return future
    try:
        size = place.call_record(run, digest).calls
    except CallError:  # submitted elsewhere: it can be watched as any group
        return future
    return batch_of(choice, run, digest, size)


def batch_of(choice: PlaceChoice, group: Run, digest: str, size: int) -> RunBatch:
    from phalanx.home.group_folder import trial_id

    runs = [RunFuture(choice, trial_id(group.id, number), digest, group.id) for number in range(size)]
    return RunBatch(choice, group, digest, runs)
