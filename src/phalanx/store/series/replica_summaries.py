"""The summaries of one replica while it logs: exact at every moment, with few points in memory."""

from __future__ import annotations

from pathlib import Path

from phalanx import run_paths
from phalanx.store.records import Summary
from phalanx.store.series.attempts import PointHistory
from phalanx.store.series.compacted import parts_of
from phalanx.store.series.run_series import RunSeries
from phalanx.store.series.summaries import FolderSummaries, merged


class ReplicaSummaries:
    """Follows an attempt. Of the attempts before it, a part may survive: it is read once for each metric."""

    def __init__(self, run_folder: Path, replica: str, attempt: int) -> None:
        self.replica = replica
        self.run_folder = run_folder
        self.attempt = attempt
        self._fresh = FolderSummaries(run_folder / run_paths.attempt_folder(replica, attempt))
        self._is_compacted = attempt in parts_of(run_folder)  # it was reopened: more points are there than in the files
        self._survived: dict[str, tuple[int, Summary | None]] = {}  # with the smallest step of this attempt
        self._earlier: PointHistory | None = None
        self._exact: RunSeries | None = None  # knows all points of the replica

    def poll(self) -> set[str]:
        """The metrics with new points."""
        changed = self._fresh.poll()
        self._earlier = None  # not kept in memory
        if changed and self._exact is not None:
            self._exact.poll()
        return changed

    def summary(self, metric: str) -> Summary:
        """Of a metric that has points."""
        if self._needs_all_points(metric):
            if self._exact is None:
                self._exact = RunSeries(self.run_folder, only=self.replica)
            found = self._exact.summary(metric, self.replica)
            if found is not None:
                return found
        fresh = self._fresh.summaries[metric]
        return fresh if self.attempt == 1 else merged(self._before(metric), fresh)

    def _needs_all_points(self, metric: str) -> bool:
        """Points may repeat others, or their steps continue those of an earlier attempt."""
        is_continued = self.attempt > 1 and metric in self._fresh.counted
        return self._is_compacted or is_continued or metric in self._fresh.unclear

    def _before(self, metric: str) -> Summary | None:
        """What survives of earlier attempts."""
        first = self._fresh.first_steps[metric]
        known = self._survived.get(metric)
        if known is None or known[0] != first:
            if self._earlier is None:
                self._earlier = PointHistory(self.run_folder, self.attempt, only=self.replica)
            known = self._survived[metric] = (first, self._earlier.summary(metric, self.replica, below=first))
        return known[1]
