"""Requests and the scheduler's turns keep out of each other's way.

What a request writes goes into a file and then into the store; the scheduler reads the file and brings it into the
store, too. In between the two, what it has read is older than what the store has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Any number write together, or one is alone. Whoever waits to be alone is next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._waiting = 0
        self._is_alone = False
        self._mine = threading.local()

    @contextmanager
    def together(self) -> Iterator[None]:
        """May be asked for again by who has it."""
        depth = getattr(self._mine, "depth", 0)
        if not depth:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_alone and not self._waiting)
                self._together += 1
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            if not depth:
                with self._changed:
                    self._together -= 1
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._is_alone and not self._together)
            self._waiting -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()
