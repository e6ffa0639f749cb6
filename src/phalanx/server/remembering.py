"""Answers that are remembered for a moment, so that many who ask at once are told the same, and work is done once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Answered = TypeVar("Answered")


class Remembered(Generic[Answered]):
    def __init__(self, most: int = 64) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Slot[Answered]] = OrderedDict()

    def get(self, key: Hashable, for_s: float, make: Callable[[], Answered]) -> Answered:
        """What was made before, if that is not too long ago. Of those who ask for the same, one makes it."""
        with self._lock:
            slot = self._kept.pop(key, None) or _Slot()
            self._kept[key] = slot
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        with slot.lock:
            if not slot.answer or time.monotonic() - slot.made_at > for_s:
                slot.answer = [make()]
                slot.made_at = time.monotonic()
            return slot.answer[0]


class _Slot(Generic[Answered]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made_at = 0.0
        self.answer: list[Answered] = []
