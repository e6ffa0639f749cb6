"""Finds the run of a call that names none: `tracking.log(loss=0.5)`.

Each context (a thread, an asyncio task) has its own run, so that concurrent trials stay apart. Code that started no
run itself (a worker thread, a callback, a forked process) uses the run of the process. Standard library only,
Python 3.8+.
"""

from __future__ import annotations

import _thread
import sys
from typing import Any

from phalanx.tracking.run import HERE, TrackedRun


class ProcessRuns:
    """The runs of this process. One that is finished stands for the run around it."""

    def __init__(self) -> None:
        self.main: TrackedRun | None = None  # for code that started none itself
        self.unfinished: list[TrackedRun] = []
        self.lock = _thread.RLock()

    def current(self) -> TrackedRun | None:
        """The run of this context, or else that of the process. A finished one only if there is no other: what is
        logged to it is counted as lost."""
        run = outer(HERE.get())
        if run is None or run.is_finished:
            main = outer(self.main)
            if main is not None and (run is None or not main.is_finished):
                return main
        return run

    def add(self, run: TrackedRun, *, is_shared: bool) -> bool:
        """Make it the run of this context. Returns whether it is that of the process, too: the first one, one inside
        of that, or one that all threads share."""
        run.starter = _starter()
        HERE.set(run)
        with self.lock:
            self.unfinished = [one for one in self.unfinished if not one.is_finished]
            if not run.is_nowhere:
                self.unfinished.append(run)
            main = outer(self.main)
            is_free = main is None or main.is_finished or main is run.parent
            if is_shared or (is_free and is_main_thread()):
                self.main = run
            return self.main is run

    def forget(self, run: TrackedRun) -> None:
        """After it was finished on purpose: a later call starts another one, or uses the one around it."""
        if outer(HERE.get()) is outer(run):
            HERE.set(run.parent)
        with self.lock:
            if self.main is run:
                self.main = run.parent

    def is_here(self, run: TrackedRun) -> bool:
        """Whether it is the run of this context, possibly inherited from the one that created this context."""
        return outer(HERE.get()) is run

    def is_ours(self, run: TrackedRun) -> bool:
        """Whether the code that calls this also started the run, so that its next run follows this one. A notebook may
        run each cell as a task of its own."""
        thread, task = run.starter
        this_thread, this_task = _starter()
        if thread != this_thread or not (self.is_here(run) or outer(self.main) is run):
            return False
        return task is this_task or (task is not None and bool(task.done()))

    def after_fork(self) -> None:
        self.lock = _thread.RLock()
        for run in self.unfinished:
            run.after_fork()


def outer(run: TrackedRun | None) -> TrackedRun | None:
    """The run, or the innermost unfinished one around it. A finished run that is inside of no other is itself."""
    while run is not None and run.is_finished and run.parent is not None:
        run = run.parent
    return run


def is_main_thread() -> bool:
    threading = sys.modules.get("threading")  # slow to import; without it there are no other threads
    return threading is None or threading.main_thread().ident == _thread.get_ident()


def _starter() -> tuple[int, Any]:
    """The thread and the asyncio task of the caller."""
    asyncio = sys.modules.get("asyncio")
    try:
        task = asyncio.current_task() if asyncio is not None else None
    except (RuntimeError, AttributeError):  # no loop is running; or asyncio is being imported
        task = None
    return _thread.get_ident(), task
