"""The progress of a run's replicas: the last step that each logged.

Only the end of a growing file is read, and only when it has grown: hundreds of replicas with hundreds of metrics may be
polled every second.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from phalanx import run_paths
from phalanx.spool import HEAD, MAX_PAYLOAD, MOMENT, NO_STEP, POINTS, split
from phalanx.store.series.compacted import CompactedPart, parts_of
from phalanx.store.series.points import point_files
from phalanx.store.series.summaries import FolderSummaries

TAIL = 1 << 16  # bytes: many records of usual size
OVERLAP = 512  # bytes before those that are new: the first of these may be the end of a record
MOST_RUNS = 64


class ReplicaStep(NamedTuple):
    """The largest logged step, and its time in seconds since the epoch."""

    step: int
    at: float


class ReplicaSteps:
    """The most recently requested attempts."""

    def __init__(self, most: int = MOST_RUNS) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Path, int], AttemptSteps] = OrderedDict()

    def of(self, run_folder: Path, attempt: int, replicas: Iterable[str]) -> dict[str, ReplicaStep]:
        """By replica; replicas that logged nothing are omitted."""
        with self._lock:
            kept = self._kept.pop((run_folder, attempt), None) or AttemptSteps(run_folder, attempt)
            self._kept[run_folder, attempt] = kept
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return kept.look(replicas)


class AttemptSteps:
    def __init__(self, run_folder: Path, attempt: int) -> None:
        self.run_folder = run_folder
        self.attempt = attempt
        self._lock = threading.Lock()
        self._replicas: dict[str, _Replica] = {}
        self._parts: dict[Path, dict[str, ReplicaStep]] = {}

    def look(self, replicas: Iterable[str]) -> dict[str, ReplicaStep]:
        with self._lock:
            found: dict[str, ReplicaStep] = {}
            for name in replicas:
                one = self._replicas.get(name)
                if one is None:
                    folder = self.run_folder / run_paths.attempt_folder(name, self.attempt)
                    one = self._replicas[name] = _Replica(folder)
                _keep(found, name, one.look())
            # After the files: points are removed once they are in a part.
            for steps in self._compacted():
                for name, step in steps.items():
                    _keep(found, name, step)
            return found

    def _compacted(self) -> Iterable[dict[str, ReplicaStep]]:
        for path in parts_of(self.run_folder).get(self.attempt, {}).values():
            if path not in self._parts:
                part = CompactedPart.open(path)
                self._parts[path] = {} if part is None else _steps_of(part)
            yield self._parts[path]


class _Replica:
    """Follows the point files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: dict[str, tuple[int, int]] = {}
        self.step: ReplicaStep | None = None
        self.counting: FolderSummaries | None = None  # only for clients that give no steps, which must be counted

    def look(self) -> ReplicaStep | None:
        for name in point_files(self.folder):
            try:
                with (self.folder / name).open("rb") as stream:
                    state = os.fstat(stream.fileno())
                    inode, size = self.sizes.get(name, (0, 0))
                    if (inode, size) == (state.st_ino, state.st_size):
                        continue
                    is_longer = inode == state.st_ino and size < state.st_size
                    found = _last_step(stream.fileno(), state.st_size, size if is_longer else 0)
            except OSError:
                continue  # compacted meanwhile
            self.sizes[name] = (state.st_ino, state.st_size)
            if found is not None and found.step == NO_STEP:
                found = self._count()
            if found is not None and (self.step is None or found.step >= self.step.step):
                self.step = found
        return self.step

    def _count(self) -> ReplicaStep | None:
        """A client that gives no steps: the whole file must be read, but only once."""
        if self.counting is None:
            self.counting = FolderSummaries(self.folder)
        self.counting.poll()
        known = self.counting.summaries.values()
        return max((ReplicaStep(one.step, one.at) for one in known), default=None)


def _last_step(descriptor: int, size: int, known: int) -> ReplicaStep | None:
    """The largest step among the last records, after the `known` bytes. If a record is larger than the first read, more
    is read."""
    length = min(TAIL, size - known + OVERLAP)
    while True:
        records = split(os.pread(descriptor, min(length, size), max(0, size - length)))[0]
        moments = [MOMENT.unpack_from(one.payload) for one in records if _has_moment(one.kind, one.payload)]
        if moments:
            step, at = max(moments)
            return ReplicaStep(step, at)
        if length >= size or length > HEAD.size + MAX_PAYLOAD:
            return None
        length *= 16


def _has_moment(kind: int, payload: bytes) -> bool:
    return kind == POINTS and len(payload) >= MOMENT.size


def _steps_of(part: CompactedPart) -> dict[str, ReplicaStep]:
    """The largest step of any metric of each replica."""
    found: dict[str, ReplicaStep] = {}
    highest, times = part.totals.columns[5], part.totals.columns[8]
    for replica, step, at in zip(part.places[1], highest, times, strict=True):
        _keep(found, part.replicas[replica].name, ReplicaStep(step, at))
    return found


def _keep(found: dict[str, ReplicaStep], name: str, step: ReplicaStep | None) -> None:
    if step is not None and (name not in found or step > found[name]):
        found[name] = step
