"""Separates requests from the scheduler's passes.

A request writes to a file and then to the store; the scheduler reads the file and updates the store, too. Between the
two steps of a request, what the scheduler has read is older than what the store has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx import locks

PATIENCE_S = 5.0  # how long a pass waits for requests to other servers
LOOK_S = 0.002


class WriteGate:
    """A readers-writer lock: many shared holders, or one exclusive. A waiting exclusive holder is next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._waiting = 0
        self._is_alone = False
        self._mine = threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Reentrant."""
        depth = getattr(self._mine, "depth", 0)
        if not depth:
            self._arrive()
            with self._changed:
                self._changed.wait_for(lambda: not self._is_alone and not self._waiting)
                if not self._together:
                    self._join()
                self._together += 1
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            if not depth:
                with self._changed:
                    self._together -= 1
                    if not self._together:
                        self._part()
                    self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._is_alone and not self._together)
            self._waiting -= 1
            self._is_alone = True
        try:
            self._claim()
            yield
        finally:
            self._part()
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    def _arrive(self) -> None:
        """A shared holder arrives."""

    def _join(self) -> None:
        """The first shared holder has arrived."""

    def _claim(self) -> None:
        """The exclusive holder has entered."""

    def _part(self) -> None:
        """The last shared holder, or the exclusive one, has left."""


class SharedWriteGate(WriteGate):
    """The same across several servers of one home, with file locks that the kernel releases when a holder dies.

    File locks are not fair. So there is a second lock that every holder passes through, and that a scheduler pass holds
    until earlier holders have left. A pass does not wait for a hanging server: what it writes to the store may then
    briefly be older than what a request has written, until the next pass.
    """

    def __init__(self, path: Path, patience_s: float = PATIENCE_S) -> None:
        super().__init__()
        self.patience_s = patience_s
        self._entrance = path.with_name(f"{path.stem}-entrance{path.suffix}")
        self._descriptor = locks.open_lock(path)

    def _arrive(self) -> None:
        entrance = locks.open_lock(self._entrance)
        try:
            locks.take(entrance, wait=True, shared=True)
        finally:
            os.close(entrance)

    def _join(self) -> None:
        locks.take(self._descriptor, wait=True, shared=True)

    def _claim(self) -> None:
        deadline = time.monotonic() + self.patience_s
        entrance = locks.open_lock(self._entrance)
        try:
            locks.take(entrance, wait=True)
            while not locks.take(self._descriptor, wait=False) and time.monotonic() < deadline:
                time.sleep(LOOK_S)
        finally:
            os.close(entrance)

    def _part(self) -> None:
        locks.release(self._descriptor)
