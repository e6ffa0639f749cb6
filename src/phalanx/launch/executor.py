"""`phalanx.Executor`: runs as futures of `concurrent.futures`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from phalanx.errors import PhalanxError, is_transient
from phalanx.launch.functions import start_call
from phalanx.launch.options import check_call, read_options
from phalanx.launch.run_future import pauses
from phalanx.store.statuses import Status

if TYPE_CHECKING:
    from phalanx.launch.run_future import RunFuture


class LaunchedFuture(Future[Any]):
    """The future of a run; `run` is the run itself."""

    def __init__(self, run: RunFuture) -> None:
        super().__init__()
        self.run = run

    def running(self) -> bool:
        return not self.done() and self.run.state == Status.RUNNING

    def cancel(self) -> bool:
        """Request the stop of the run. The future is cancelled when the run has ended. Returns False if it has ended
        already."""
        return self.cancelled() or (not self.done() and self.run.cancel())

    def settle(self) -> bool:
        """Take over the end of the run. Returns whether it has ended."""
        try:
            if not self.run.done():
                return False
            fault = self.run.exception()
            result = self.run.result() if fault is None else None
        except Exception as trouble:  # noqa: BLE001 - the result may raise anything when it is unpickled
            if isinstance(trouble, PhalanxError) and is_transient(trouble):
                return False
            fault, result = trouble, None
        if fault is not None and self.run.state == Status.STOPPED:
            super().cancel()
            self.set_running_or_notify_cancel()
            return True
        self.set_running_or_notify_cancel()
        if fault is not None:
            self.set_exception(fault)
        else:
            self.set_result(result)
        return True


class RunExecutor(Executor):
    """Each call is a run: `with phalanx.Executor(on="slurm", gpus=1) as pool: pool.submit(train, lr=0.1)`.

    The keyword arguments are the options of all runs, as for `phalanx.submit`. One thread looks after all futures. Runs
    do not end with the process: `phalanx.attach(future.run.id)` finds them later.
    """

    def __init__(self, **options: Any) -> None:
        """Raises CallError for an unknown option."""
        self._options = read_options(options)
        self._pending: list[LaunchedFuture] = []
        self._changed = threading.Condition()
        self._is_shut = False
        self._watcher: threading.Thread | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> LaunchedFuture:
        """Start `function(*args, **named)`: all keyword arguments go to the function. Raises as `phalanx.submit`, and
        RuntimeError after `shutdown`."""
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        check_call(function, args, named)
        future = LaunchedFuture(start_call(function, args, named, self._options))
        with self._changed:
            self._pending.append(future)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="phalanx-executor", daemon=True)
                self._watcher.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. `wait`: until all runs have ended. `cancel_futures`: request their stop."""
        self._is_shut = True
        with self._changed:
            pending = list(self._pending)
        for future in pending if cancel_futures else ():
            future.cancel()
        if wait:
            with self._changed:
                self._changed.wait_for(lambda: not self._pending)

    def _watch(self) -> None:
        """Settle the futures until none is pending. The next `submit` starts another thread."""
        for pause_s in pauses():
            with self._changed:
                pending = list(self._pending)
            ended = [future for future in pending if future.settle()]
            with self._changed:
                self._pending = [future for future in self._pending if future not in ended]
                self._changed.notify_all()
                if not self._pending:
                    self._watcher = None
                    return
                self._changed.wait(pause_s)
