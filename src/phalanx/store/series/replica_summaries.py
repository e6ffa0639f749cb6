"""The summaries of one replica while it logs: exact at every moment, with few points in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from phalanx import run_paths
from phalanx.store.series.attempts import PointHistory
from phalanx.store.series.compacted import parts_of
from phalanx.store.series.run_series import RunSeries
from phalanx.store.series.summaries import FolderSummaries, Summary, merged


class ReplicaSummaries:
    """Follows the latest attempt. `earlier` has the attempts before it, of which a part may survive."""

    def __init__(self, run_folder: Path, replica: str, attempt: int, earlier: PointHistory) -> None:
        self.replica = replica
        self.run_folder = run_folder
        self._earlier = earlier if attempt > 1 else None
        after = None if self._earlier is None else partial(self._earlier.largest_step, replica=replica)
        self._fresh = FolderSummaries(run_folder / run_paths.attempt_folder(replica, attempt), after)
        self._is_compacted = attempt in parts_of(run_folder)  # it was reopened: more points are there than in the files
        self._survived: dict[str, tuple[int, Summary | None]] = {}  # with the smallest step of this attempt
        self._exact: RunSeries | None = None  # knows all points of the replica

    def poll(self) -> set[str]:
        """The metrics with new points."""
        changed = self._fresh.poll()
        if changed and self._exact is not None:
            self._exact.poll()
        return changed

    def summary(self, metric: str) -> Summary:
        """Of a metric that has points."""
        if self._is_compacted or metric in self._fresh.unclear:
            if self._exact is None:
                self._exact = RunSeries(self.run_folder, only=self.replica)
            found = self._exact.summary(metric, self.replica)
            if found is not None:
                return found
        fresh = self._fresh.summaries[metric]
        return fresh if self._earlier is None else merged(self._before(metric, self._earlier), fresh)

    def _before(self, metric: str, earlier: PointHistory) -> Summary | None:
        """What survives of earlier attempts."""
        first = self._fresh.first_steps[metric]
        known = self._survived.get(metric)
        if known is None or known[0] != first:
            known = self._survived[metric] = (first, earlier.summary(metric, self.replica, below=first))
        return known[1]
