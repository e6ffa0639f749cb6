"""Short-lived caches of responses: many identical requests at once cost the work of one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Answered = TypeVar("Answered")


class CachedResponse(Generic[Answered]):
    def __init__(self, most: int = 64) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Slot[Answered]] = OrderedDict()

    def get(self, key: Hashable, for_s: float, make: Callable[[], Answered]) -> Answered:
        """The cached value, if it is recent enough. Of concurrent requests for the same value, one computes it."""
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


CHEAP_S = 0.005  # CPU seconds: cheaper responses are not cached
SHARE = 20.0  # a response is reused for this many times as long as it took to make
LONGEST_S = 0.5
STALE_S = 5.0


class CachedContent(bytes):
    """A response that may be reused until a time of the monotonic clock. `http/answer_cache.py` does, for the same
    caller."""

    until: float


class ResponseCache:
    """Recent responses, for many clients that request the same while ranks log and lists change. Only expensive
    responses are cached, and only briefly; requests that arrive during a refresh get the previous one.

    `changes` is a number that grows with every change by a client, through whichever process of the server: the client
    expects to see it."""

    def __init__(self, most_bytes: int = 32 << 20, changes: Callable[[], float] = lambda: 0.0) -> None:
        self.most_bytes = most_bytes
        self.changes = changes
        self._seen_changes = 0.0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._size = 0

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            if self.changes() != self._seen_changes:
                self._clear()
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Answer()
            self._kept.move_to_end(key)
            age_s = time.monotonic() - kept.made_at
            if kept.content is not None and (age_s < kept.for_s or (kept.lock.locked() and age_s < STALE_S)):
                return kept.content
        with kept.lock:
            if kept.content is not None and time.monotonic() - kept.made_at < kept.for_s:
                return kept.content  # another thread made it while this one waited
            began = time.thread_time()
            content = make()
            took_s = time.thread_time() - began
            return self._keep(key, kept, content, took_s)

    def _keep(self, key: Hashable, kept: _Answer, content: bytes, took_s: float) -> bytes:
        with self._lock:
            if self._kept.get(key) is not kept or self.changes() != self._seen_changes:
                return content  # something changed meanwhile
            if took_s < CHEAP_S:
                self._drop(key)
                return content
            found = CachedContent(content)
            self._size += len(found) - len(kept.content or b"")
            kept.content, kept.made_at, kept.for_s = found, time.monotonic(), min(LONGEST_S, SHARE * took_s)
            found.until = kept.made_at + kept.for_s
            while self._size > self.most_bytes and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))
            return found

    def _drop(self, key: Hashable) -> None:
        self._size -= len(self._kept.pop(key).content or b"")

    def forget(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._seen_changes = self.changes()
        self._kept.clear()
        self._size = 0


class _Answer:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.content: CachedContent | None = None
        self.made_at = float("-inf")
        self.for_s = 0.0
