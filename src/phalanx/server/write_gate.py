"""Requests and the scheduler's turns keep out of each other's way.

What a request writes goes into a file and then into the store; the scheduler reads the file and brings it into the
store, too. In between the two, what it has read is older than what the store has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx import locks

PATIENCE_S = 5.0  # how long a turn waits for requests to other servers
LOOK_S = 0.002


class WriteGate:
    """Any number write together, or one is alone. Whoever waits to be alone is next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._waiting = 0
        self._is_alone = False
        self._mine = threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """May be asked for again by who has it."""
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
        """Somebody comes to be together with others."""

    def _join(self) -> None:
        """The first of those together has come."""

    def _claim(self) -> None:
        """One is alone here."""

    def _part(self) -> None:
        """The last of those together has gone, or the one that was alone."""


class SharedWriteGate(WriteGate):
    """The same among several servers of one home, by locks that the kernel takes back from whoever dies.

    Locks of files are not fair: so there is a second one, through which everybody comes, and which a turn holds until
    those who came before it have gone. A server that does not go on at all is not waited for: what a turn brings into
    the store may then for a moment be older than what a request has brought there, until the next turn.
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
