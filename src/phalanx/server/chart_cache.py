"""Caches of run series and of chart lines computed from them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, thread_time
from typing import NamedTuple

from phalanx.server.http.response_cache import CHEAP_S
from phalanx.store.series.run_series import RunSeries

MOST_BYTES = 256 << 20  # bytes of points and leaves of runs kept in memory
MOST_TEXT_BYTES = 64 << 20  # bytes of chart lines
WEIGHED_S = 2.0
DONE_S = 2.0  # how long a finished run is served without checking its files
SHARE = 10.0  # for an active run: this many times as long as reading and drawing took
LONGEST_S = 5.0
RUN_BYTES = 20_000  # estimated bytes of a run besides its points


class SeriesCache:
    """The series of the most recently requested runs. Reading continues where it stopped; one thread at a time."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_text_bytes: int = MOST_TEXT_BYTES) -> None:
        self.most_bytes = most_bytes
        self.texts = ChartTextCache(most_text_bytes)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()

    @contextmanager
    def of(self, folder: Path) -> Iterator[RunSeries]:
        with self.stamped(folder) as (series, _):
            yield series

    @contextmanager
    def stamped(self, folder: Path, patience_s: float = 0.0) -> Iterator[CachedText]:
        """The series of a run, and its stamp. Files that were read less than `patience_s` ago are not checked again."""
        with self._lock:
            kept = self._kept.pop(folder, None) or _Kept(folder)
            self._kept[folder] = kept
        with kept.lock:
            began = thread_time()
            try:
                if not kept.stamp or monotonic() - kept.polled_at >= patience_s:
                    kept.took_s = 0.0
                    if kept.series.poll() or not kept.stamp:
                        kept.stamp = kept.series.stamp()
                    kept.polled_at = monotonic()
                yield CachedText(kept.series, kept.stamp)
            finally:
                kept.took_s += thread_time() - began
                self._make_room(kept)

    def patience_s(self, folder: Path, *, is_done: bool) -> float:
        """How long cached data of a run may be served: a finished run rarely changes, and an active run with many ranks
        and many viewers must not occupy a whole core."""
        kept = self._kept.get(folder)
        if is_done:
            return DONE_S
        took_s = kept.took_s if kept is not None else 0.0
        return min(LONGEST_S, SHARE * took_s) if took_s > CHEAP_S else 0.0

    def _make_room(self, used: _Kept) -> None:
        """Adding up the size of a run with very many series is slow, so it is not done each time."""
        if monotonic() - used.weighed_at < WEIGHED_S:
            return
        used.size, used.weighed_at = used.series.held_bytes() + RUN_BYTES, monotonic()
        with self._lock:
            size = sum(kept.size for kept in self._kept.values())
            while size > self.most_bytes and len(self._kept) > 1:
                size -= self._kept.popitem(last=False)[1].size

    def __len__(self) -> int:
        return len(self._kept)


class CachedText(NamedTuple):
    series: RunSeries
    stamp: str


class _Kept:
    def __init__(self, folder: Path) -> None:
        self.lock = threading.Lock()
        self.series = RunSeries(folder)
        self.stamp = ""
        self.polled_at = self.weighed_at = float("-inf")
        self.size = RUN_BYTES
        self.took_s = 0.0  # CPU seconds since the last check


class ChartTextCache:
    """Parts of responses by request; keeps the most recently used."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], str] = OrderedDict()
        self._size = 0

    def get(self, question: tuple[object, ...], make: Callable[[], str]) -> str:
        with self._lock:
            found = self._kept.get(question)
            if found is not None:
                self._kept.move_to_end(question)
                return found
        made = make()
        with self._lock:
            if question not in self._kept:
                self._kept[question] = made
                self._size += len(made)
                while self._size > self.most_bytes and self._kept:
                    self._size -= len(self._kept.popitem(last=False)[1])
        return made
