"""Short-lived caches of responses: many identical requests at once cost the work of one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from phalanx.server.processes.shared_state import SharedContent, SharedContents

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
SHARE = 100.0  # a response is reused for this many times as long as it took to make
LONGEST_S = 1.0
STALE_S = 5.0
AGAIN_S = 0.05  # how long the previous response is reused before looking whether another process has made the next


class CachedContent(bytes):
    """A response that may be reused until a time of the monotonic clock. `http/answer_cache.py` does, for all callers
    with the same permissions; for one caller alone, if it is personal."""

    until: float
    begun_at: float
    is_personal: bool


class ResponseCache:
    """Recent responses, for many clients that request the same while ranks log and lists change. Only expensive
    responses are cached, and only briefly; requests that arrive during a refresh get the previous one.

    `changes` is a number that grows with every change by a client, through whichever process of the server: the client
    expects to see it."""

    def __init__(
        self,
        most_bytes: int = 32 << 20,
        changes: Callable[[], float] = lambda: 0.0,
        shared: SharedContents | None = None,
        event_at: Callable[[str], float] = lambda _: float("-inf"),
    ) -> None:
        """`shared`: what other processes of the server have made; `event_at`: when clients were last told to fetch
        again what is about a run, or lists (an empty id)."""
        self.most_bytes = most_bytes
        self.changes = changes
        self.shared = shared
        self.event_at = event_at
        self._seen_changes = 0.0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._size = 0

    def get(self, key: Hashable, make: Callable[[], bytes], *, run_id: str = "", whose: str = "") -> bytes:
        """`key`: all that the response depends on, except for the data. `run_id`: the run that it is about. `whose`:
        the caller, if it is personal."""
        key = (key, whose)
        event_at = self.event_at(run_id)
        with self._lock:
            if self.changes() != self._seen_changes:
                self._clear()
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Answer()
            self._kept.move_to_end(key)
            age_s = time.monotonic() - kept.made_at
            if (
                kept.content is not None
                and kept.content.begun_at > event_at
                and (age_s < kept.for_s or (kept.lock.locked() and age_s < STALE_S))
            ):
                return kept.content
        with kept.lock:
            if kept.content is not None and kept.content.begun_at > event_at and kept.is_recent():
                return kept.content  # another thread made it while this one waited
            name = repr(key)
            others = self._made_by_others(name, event_at)
            return self._keep(key, kept, others) if others is not None else self._made(key, name, kept, make)

    def _made(self, key: tuple[Hashable, str], name: str, kept: _Answer, make: Callable[[], bytes]) -> bytes:
        if self.shared is not None:
            self.shared.make(name)
        changes, begun_at, began = self.changes(), time.monotonic(), time.thread_time()
        content = make()
        took_s = time.thread_time() - began
        if took_s < CHEAP_S:
            self._keep_none(key, kept)
            return content
        made = SharedContent(content, time.monotonic(), min(LONGEST_S, SHARE * took_s), changes, begun_at)
        if self.shared is not None:
            self.shared.put(name, made)
        return self._keep(key, kept, made)

    def _made_by_others(self, name: str, event_at: float) -> SharedContent | None:
        """What another process has made that is recent enough, or the previous content while it makes a new one."""
        if self.shared is None:
            return None
        now, found = time.monotonic(), self.shared.get(name)
        if found is not None and found.changes == self.changes() and found.begun_at > event_at:
            if now - found.made_at < found.for_s:
                return found
            if now - found.made_at < STALE_S and self.shared.is_being_made(name):
                return found._replace(made_at=now, for_s=AGAIN_S)
        return None

    def _keep(self, key: tuple[Hashable, str], kept: _Answer, made: SharedContent) -> bytes:
        with self._lock:
            if self._kept.get(key) is not kept or not made.changes == self._seen_changes == self.changes():
                return made.content  # something changed meanwhile
            found = CachedContent(made.content)
            self._size += len(found) - len(kept.content or b"")
            kept.content, kept.made_at, kept.for_s = found, made.made_at, made.for_s
            found.until, found.begun_at, found.is_personal = kept.made_at + kept.for_s, made.begun_at, bool(key[1])
            while self._size > self.most_bytes and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))
            return found

    def _keep_none(self, key: Hashable, kept: _Answer) -> None:
        with self._lock:
            if self._kept.get(key) is kept:
                self._drop(key)

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

    def is_recent(self) -> bool:
        return time.monotonic() - self.made_at < self.for_s
