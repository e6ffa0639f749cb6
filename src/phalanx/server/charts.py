"""The series of runs, kept for whoever asks again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.store.series import RunSeries

MOST_KEPT = 16  # runs whose points stay in memory


class Charts:
    """The series of the runs that were last asked for. They read on from where they stopped; one thread at a time."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, tuple[threading.Lock, RunSeries]] = OrderedDict()

    @contextmanager
    def of(self, folder: Path) -> Iterator[RunSeries]:
        with self._lock:
            alone, series = self._kept.pop(folder, (threading.Lock(), RunSeries(folder)))
            self._kept[folder] = alone, series
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        with alone:
            series.poll()
            yield series
