"""The series of a run: every metric of every replica over all attempts, for charts, tables and comparison.

A restarted run logs some steps again. The surviving line is the one that training continued from: points of an earlier
attempt are overwritten from the first step on that a later attempt logged for the same series. They are kept
separately.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from phalanx.errors import CallError, SystemFault
from phalanx.store.records import Summary
from phalanx.store.series.attempts import PointHistory, line_ends, planned_ranks, replica_order, surviving
from phalanx.store.series.leaves import Bucket, Leaf
from phalanx.store.series.points import LAST_STEP, Columns
from phalanx.store.series.rank_statistics import Spread, on_grid, per_step, reached, side_by_side
from phalanx.store.series.strands import (
    Point,
    Strand,
    buckets_of,
    latest,
    points_of,
    summary_of_line,
    total_of,
    within,
)
from phalanx.store.series.summaries import FIRST_STEP, point_key

__all__ = ["Bucket", "Point", "RunSeries", "Series", "Spread", "Summary"]

ANSWERS_KEPT = 64
EXACT_POINTS = 250_000  # more steps than this are put on a grid before ranks are compared
GRID = 1000  # default number of cells
FINER = 4  # buckets of a replica per cell of the grid
MANY = 32  # from this number of replicas on, finer buckets are not needed

Question = tuple[str, str, int, int | None, int | None]  # metric, replica, count, first, last


class Series(NamedTuple):
    """A line: columns of equal length, in the order of logging."""

    metric: str
    replica: str
    rank: int | None
    steps: array[int]
    times: array[float]
    values: array[float]
    attempts: array[int]


class RunSeries:
    """Reads a run's folder on first use, and again at each `poll`; in between, results do not change. Keep the object
    to continue reading cheaply while the run is active. Not thread-safe.

    Compacted points are read with pyarrow. Without it, buckets and summaries are made from the leaves, and methods that
    need the points themselves raise CallError.
    """

    def __init__(self, run_folder: Path, only: str | None = None) -> None:
        """`only`: the points of one replica that are not compacted; for the series of that replica."""
        self.folder = run_folder
        self._attempts = PointHistory(run_folder, only=only)
        self._polled = False
        self._index: dict[str, list[str]] = {}  # replicas by metric
        self._ranks: dict[str, int] = {}
        self._series: dict[int, tuple[object, ...]] = {}
        self._lines: dict[tuple[str, str], list[list[Strand]]] = {}
        self._answers: dict[Question, list[Bucket]] = {}

    def poll(self) -> bool:
        """Read new data; returns whether there was any."""
        changed = self._attempts.poll() or not self._polled
        if changed:
            self._polled = True
            self._forget()
        return changed

    def _forget(self) -> None:
        self._lines.clear()
        self._answers.clear()
        known = {number: attempt.known() for number, attempt in self._attempts.each.items()}
        if known != self._series:
            self._series = known
            self._list()

    def _list(self) -> None:
        """Which replica logged what; with thousands of series this takes longer than reading new points."""
        self._ranks = planned_ranks(self.folder)
        found: dict[str, set[str]] = {}
        for _, attempt in sorted(self._attempts.each.items()):
            self._ranks.update(attempt.ranks())
            for metric, replica in attempt.series():
                found.setdefault(metric, set()).add(replica)
        self._index = {metric: sorted(found[metric], key=self._order) for metric in sorted(found)}

    def _order(self, replica: str) -> tuple[object, ...]:
        return replica_order(replica, self._ranks.get(replica))

    def _known(self) -> dict[str, list[str]]:
        if not self._polled:
            self.poll()
        return self._index

    def names(self) -> list[str]:
        """All metrics."""
        return list(self._known())

    def replicas(self, metric: str) -> list[str]:
        """The replicas that logged it: the master first, then by rank."""
        return list(self._known().get(metric, ()))

    def skipped_bytes(self) -> int:
        """How many written bytes are damaged, and so missing here."""
        self._known()
        return sum(attempt.skipped_bytes() for attempt in self._attempts.each.values())

    def _chosen(self, metric: str, replica: str | None) -> Iterator[str]:
        return (one for one in self.replicas(metric) if replica in (None, one))

    def _attempt_lines(self, metric: str, replica: str) -> list[list[Strand]]:
        """The line of each attempt that logged the series."""
        found = self._lines.get((metric, replica))
        if found is None:
            found = self._lines[metric, replica] = self._attempts.lines(metric, replica)
        return found

    def _surviving(self, metric: str, replica: str, *, roughly: bool = False) -> list[Strand]:
        return surviving(self._attempt_lines(metric, replica), roughly=roughly)

    def series(self, metric: str, replica: str | None = None) -> list[Series]:
        """The surviving line of each replica, or of one."""
        return [self._made(metric, one, self._surviving(metric, one)) for one in self._chosen(metric, replica)]

    def overwritten(self, metric: str, replica: str) -> list[Series]:
        """The overwritten points, by attempt."""
        lines = self._attempt_lines(metric, replica) if replica in self.replicas(metric) else []
        found = []
        for line, end in zip(lines, line_ends(lines), strict=True):
            if end < LAST_STEP:
                lost = [part for strand in line for part in within(strand, end + 1, LAST_STEP)]
                if lost:
                    found.append(self._made(metric, replica, lost))
        return found

    def _made(self, metric: str, replica: str, strands: Sequence[Strand]) -> Series:
        points = points_of(strands)
        attempts = array("q")
        for strand in strands:
            attempts.extend(array("q", [strand.attempt]) * strand.rows)
        rank = self._ranks.get(replica)
        return Series(metric, replica, rank, points.steps, points.times, points.values, attempts)

    def buckets(
        self, metric: str, count: int, replica: str | None = None, first: int | None = None, last: int | None = None
    ) -> dict[str, list[Bucket]]:
        """The surviving line of each replica, or of one, as at most `count` buckets; for the steps from `first` to
        `last`, both included. With no more points than that: one bucket per point."""
        return {one: self._answer((metric, one, max(count, 1), first, last)) for one in self._chosen(metric, replica)}

    def _answer(self, question: Question) -> list[Bucket]:
        """Cached: the same chart is requested repeatedly."""
        found = self._answers.pop(question, None)
        if found is None:
            found = self._buckets(*question)
            if len(self._answers) >= ANSWERS_KEPT:
                del self._answers[next(iter(self._answers))]
        self._answers[question] = found  # as the most recently used
        return list(found)

    def _buckets(self, metric: str, replica: str, count: int, first: int | None, last: int | None) -> list[Bucket]:
        return buckets_of(self._stretch(metric, replica, first, last), count)

    def _stretch(self, metric: str, replica: str, first: int | None, last: int | None) -> list[Strand]:
        return _between(self._surviving(metric, replica, roughly=True), first, last)

    def overwritten_buckets(
        self, metric: str, replica: str, count: int, first: int | None = None, last: int | None = None
    ) -> list[tuple[int, list[Bucket]]]:
        """The overwritten points: at most `count` buckets per attempt."""
        lines = self._attempt_lines(metric, replica) if replica in self.replicas(metric) else []
        found = []
        for line, end in zip(lines, line_ends(lines), strict=True):
            lost = _between(_between(line, end + 1, None), first, last) if end < LAST_STEP else []
            if lost:
                found.append((lost[0].attempt, buckets_of(lost, max(count, 1))))
        return found

    def first_steps(self, metric: str, replica: str) -> list[tuple[int, int]]:
        """Each attempt that logged a series, and its first step."""
        lines = self._attempt_lines(metric, replica) if replica in self.replicas(metric) else []
        return [(line[0].attempt, min(strand.total().low_step for strand in line)) for line in lines]

    def rank(self, replica: str) -> int | None:
        self._known()
        return self._ranks.get(replica)

    def stamp(self) -> str:
        """A stamp of the data: the same for every reader, different after every change."""
        self._known()
        each = [attempt.stamp() for _, attempt in sorted(self._attempts.each.items())]
        return sha256(repr(each).encode()).hexdigest()[:16]

    def held_bytes(self) -> int:
        """Approximate memory use of the points and leaves read so far, in bytes."""
        return sum(attempt.held_bytes() for attempt in self._attempts.each.values())

    def over_ranks(
        self, metric: str, count: int | None = None, first: int | None = None, last: int | None = None
    ) -> list[Spread]:
        """Mean, minimum and maximum over the replicas: for each step, or for a grid of `count` cells if there are more
        steps. For the steps from `first` to `last`, both included."""
        lines = [self._stretch(metric, replica, first, last) for replica in self.replicas(metric)]
        rows = [sum(strand.rows for strand in line) for line in lines]
        if rows and sum(rows) <= EXACT_POINTS and (count is None or max(rows) <= count):
            with suppress(CallError, SystemFault):  # no pyarrow here: only the leaves
                exact = per_step(map(points_of, lines))
                if count is None or len(exact) <= count:
                    return exact
        cells = GRID if count is None else max(count, 1)
        coarse = [buckets_of(line, cells) for line in lines]
        spreads = side_by_side(coarse)
        if spreads is None:
            fine = coarse if len(lines) > MANY else [buckets_of(line, FINER * cells) for line in lines]
            spreads = on_grid(fine, cells)
        return reached(spreads, [_logged_until(total) for total in map(total_of, lines) if total is not None])

    def behind(self, metric: str) -> list[tuple[str, int]]:
        """The replicas that have not come as far as the leading one, and the last step of each."""
        found = {one: total_of(self._surviving(metric, one, roughly=True)) for one in self.replicas(metric)}
        totals = {replica: total for replica, total in found.items() if total is not None}
        front = max((total.high_step for total in totals.values()), default=0)
        return [(replica, total.high_step) for replica, total in totals.items() if _logged_until(total) < front]

    def summaries(self, metrics: Iterable[str] | None = None) -> dict[str, Summary]:
        """Of all metrics, or of some: for each, of the first replica that logged it."""
        known = self._known()
        found = {metric: self.summary(metric, known[metric][0]) for metric in (known if metrics is None else metrics)}
        return {metric: summary for metric, summary in found.items() if summary is not None}

    def summary(self, metric: str, replica: str) -> Summary | None:
        """None if the replica did not log it."""
        self._known()
        return summary_of_line(self._surviving(metric, replica, roughly=True))

    def repeated(self, metric: str, replica: str, points: Iterable[Point]) -> list[Point]:
        """Those of the points that the replica has logged already."""
        line = self._surviving(metric, replica) if replica in self.replicas(metric) else []
        total = total_of(line)
        if total is None:
            return []
        old = [point for point in points if point.time <= total.high_time and point.step <= total.high_step]
        known = points_of(line) if old else Columns()
        keys = set(map(point_key, known.steps, known.times, known.values))
        return [point for point in old if point_key(point.step, point.time, point.value) in keys]

    def at(self, metric: str, step: int) -> dict[str, Point]:
        """The point of each replica at a step, or the last one before it."""
        found = {}
        for replica in self.replicas(metric):
            point = latest(self._surviving(metric, replica), step)
            if point is not None:
                found[replica] = point
        return found


def _logged_until(total: Leaf) -> int:
    """The last step before the next one is due: a replica that logs every tenth step is not behind for nine of ten."""
    return total.high_step + max((total.high_step - total.low_step) // max(total.rows - 1, 1), 1) - 1


def _between(strands: Sequence[Strand], first: int | None, last: int | None) -> list[Strand]:
    if first is None and last is None:
        return list(strands)
    low, high = FIRST_STEP if first is None else first, LAST_STEP if last is None else last
    return [part for strand in strands for part in within(strand, low, high, roughly=True)]
