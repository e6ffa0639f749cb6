"""The folder that TensorBoard reads: for each run a link to its own event files, or files written from its series.

It grows while runs do: each `update` adds new runs and appends new points.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from phalanx.boards.run_labels import labels
from phalanx.formats.tfevents_writer import EventFileWriter
from phalanx.path_patterns import is_event_file
from phalanx.store import Run
from phalanx.store.series.run_series import Series

MOST_ENTRIES = 20_000  # outputs to scan: datasets are written there, too


class SeriesReader(Protocol):
    """The series of a run: `RunSeries`, or that of a server."""

    def poll(self) -> bool: ...
    def names(self) -> list[str]: ...
    def replicas(self, metric: str) -> list[str]: ...
    def series(self, metric: str, replica: str | None = None) -> list[Series]: ...


class RunData(Protocol):
    """Where the data of a run are read."""

    def event_folder(self) -> Path | None:
        """A folder with event files of the run itself. None: there are none that this machine can see."""

    def series(self) -> SeriesReader: ...


class HomeRunData:
    """The data of a run in a home."""

    def __init__(self, outputs: Path, series: Callable[[], SeriesReader]) -> None:
        self.outputs = outputs
        self.series = series

    def event_folder(self) -> Path | None:
        entries = 0
        for _, _, names in os.walk(self.outputs):
            if any(map(is_event_file, names)):
                return self.outputs
            entries += len(names) + 1
            if entries > MOST_ENTRIES:
                return None
        return None


class LogFolder:
    """`data_of` finds the data of a run. With `all_replicas`, the other replicas of a run are below it."""

    def __init__(self, path: Path, data_of: Callable[[Run], RunData], *, all_replicas: bool = False) -> None:
        self.path = path
        self.data_of = data_of
        self.all_replicas = all_replicas
        self.names: dict[str, str] = {}  # of the entries, by run id
        self._data: dict[str, RunData] = {}
        self._written: dict[str, SeriesFiles] = {}
        self._finished: set[str] = set()  # written completely

    def update(self, runs: Sequence[Run]) -> None:
        """Add these runs, and what is new of them. Raises OSError, CallError."""
        self.names |= labels(runs, self.names)
        for run in runs:
            if not run.is_done:
                self._finished.discard(run.id)  # it was resumed
            if run.id not in self._finished:
                self._update(run)
            if run.is_done and run.id not in self._finished:
                self._finished.add(run.id)
                if run.id in self._written:
                    self._written[run.id].close()

    def _update(self, run: Run) -> None:
        data = self._data.setdefault(run.id, self.data_of(run))
        entry = self.path / self.names[run.id]
        if entry.is_symlink():
            return
        is_written = run.id in self._written and self._written[run.id].has_points
        found = None if is_written else data.event_folder()
        if found is not None:
            entry.symlink_to(found, target_is_directory=True)
            return
        if run.id not in self._written:
            self._written[run.id] = SeriesFiles(entry, data.series(), all_replicas=self.all_replicas)
        self._written[run.id].update()

    def close(self) -> None:
        for files in self._written.values():
            files.close()


class SeriesFiles:
    """Event files with the series of one run: a file per replica."""

    def __init__(self, folder: Path, series: SeriesReader, *, all_replicas: bool) -> None:
        self.folder = folder
        self.series = series
        self.all_replicas = all_replicas
        self._files: dict[str, EventFileWriter] = {}  # those that are open, by folder
        self._count = 0  # of all files
        self._ends: dict[tuple[str, str], tuple[int, int, int]] = {}  # points written, last step and attempt

    @property
    def has_points(self) -> bool:
        return bool(self._ends)

    def update(self) -> None:
        """Append new points."""
        self.series.poll()
        for metric in self.series.names():
            replicas = self.series.replicas(metric)
            for place, replica in enumerate(replicas if self.all_replicas else replicas[:1]):
                for line in self.series.series(metric, replica):
                    self._append(metric, replica, line, self.folder / replica if place else self.folder)
        for file in self._files.values():
            file.flush()

    def _append(self, metric: str, replica: str, line: Series, folder: Path) -> None:
        count, step, attempt = self._ends.get((metric, replica), (0, 0, 0))
        if not line.steps:
            return
        file = self._file(folder, line.times[0])
        if count and (len(line.steps) < count or (line.steps[count - 1], line.attempts[count - 1]) != (step, attempt)):
            kept = next((place for place, one in enumerate(line.attempts) if one > attempt), 0)  # a later attempt
            file.restart(line.steps[kept], line.times[kept])
            count = kept
        for place in range(count, len(line.steps)):
            file.scalar(metric, line.steps[place], line.times[place], line.values[place])
        self._ends[metric, replica] = (len(line.steps), line.steps[-1], line.attempts[-1])

    def _file(self, folder: Path, at: float) -> EventFileWriter:
        if str(folder) not in self._files:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._count += 1
            name = f"events.out.tfevents.{int(time.time())}.phalanx.{os.getpid()}.{self._count}"
            self._files[str(folder)] = EventFileWriter(folder / name, at)
        return self._files[str(folder)]

    def close(self) -> None:
        """Later points go to new files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
