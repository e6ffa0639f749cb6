"""The summary of a metric, as lists, searches, REST, MLflow, `ps -q` and the page show it. This is the one rule:

* A point is a step, a time (in microseconds) and a value. Points of an attempt with the same step, time and value count
  once: MLflow's client sends some again. A point that was logged without a step gets the one after the largest of its
  attempt, or of the attempt before if it is the first, so it repeats nothing.
* `last` is the point with the largest step of the latest attempt; among several, the latest; among those, the one that
  was written last. It may be NaN or infinite.
* `min` and `max` are over the finite values of the surviving line, None when there are none.
* The first replica that logged a metric represents the run: see `replica_order`.

Points are summarised as they are written (`FolderSummaries`), and from leaves (`strands.summary_of_line`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from math import inf, isfinite
from operator import lt
from pathlib import Path
from time import monotonic

from phalanx.spool import NO_STEP
from phalanx.store.records import Summary
from phalanx.store.series.points import LAST_STEP, Columns, PointFile, point_files

FIRST_STEP = -LAST_STEP - 1


def merged(before: Summary | None, more: Summary) -> Summary:
    """The summary of both; `more` was written later. A field that an older Phalanx did not store is None."""
    if before is None:
        return more
    is_later = before.step is None or (more.step, more.at) >= (before.step, before.at or 0.0)
    last = more if is_later else before
    low, high = _either(min, before.min, more.min), _either(max, before.max, more.max)
    return Summary(last.last, low, high, (before.count or 0) + more.count, last.step, last.at)


def _either(choose: Callable[[float, float], float], one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def summary_of(points: Columns) -> Summary:
    """Of at least one point, each with a step and none repeated."""
    values = points.values
    finite = values if isfinite(sum(values)) else [value for value in values if isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (None, None)
    place = last_place(points.steps, points.times)
    return Summary(values[place], low, high, len(values), points.steps[place], points.times[place])


def summary_of_point(step: int, at: float, value: float) -> Summary:
    finite = value if isfinite(value) else None
    return Summary(value, finite, finite, 1, step, at)


def last_place(steps: Sequence[int], times: Sequence[float]) -> int:
    """The position of the last point."""
    largest = max(steps)
    if steps[-1] == largest and times[-1] == max(times):
        return len(steps) - 1
    return max((times[place], place) for place, step in enumerate(steps) if step == largest)[1]


def next_step(largest: int | None) -> int:
    """The step of a point that was logged without one, after the largest so far."""
    return 0 if largest is None else min(largest + 1, LAST_STEP)


def counted(steps: array[int], largest: int | None, after: int | None = None) -> array[int]:
    """The steps, with missing ones counted: from `largest`, that of the attempt so far, or else from `after`, that of
    the attempt before."""
    found = array("q")
    append = found.append
    for given in steps:
        step = next_step(after if largest is None else largest) if given == NO_STEP else given
        if largest is None or step > largest:
            largest = step
        append(step)
    return found


class RepeatGuard:
    """Recognises points that may repeat an earlier one, without remembering the points: a point with a larger step or a
    later time than all before it repeats nothing."""

    def __init__(self) -> None:
        self.step, self.time = FIRST_STEP, -inf

    def admits(self, steps: array[int], times: array[float]) -> bool:
        """Whether none of these points, which were written next, can repeat another; their steps are as given."""
        if not steps:
            return True
        is_new = self._are_new(steps, times)
        highest, latest = max(steps), max(times)
        self.step, self.time = max(self.step, highest), max(self.time, latest)
        return is_new

    def _are_new(self, steps: array[int], times: array[float]) -> bool:
        if (times[0] > self.time and _rises(times)) or (steps[0] > self.step and _rises(steps)):
            return True
        step, time = self.step, self.time
        for given, at in zip(steps, times, strict=True):
            if given <= step and at <= time and given != NO_STEP:
                return False
            step, time = max(step, given), max(time, at)
        return True


def _rises(column: array[int] | array[float]) -> bool:
    return all(map(lt, column, islice(column, 1, None)))


def distinct(points: Columns) -> Columns:
    """The points as written, without repetitions of an earlier one; the same object when there is none."""
    if RepeatGuard().admits(points.steps, points.times):
        return points
    seen: set[tuple[object, ...]] = set()
    kept = []
    for place, point in enumerate(zip(points.steps, points.times, points.values, strict=True)):
        key = point_key(*point)
        if point[0] == NO_STEP or key not in seen:
            seen.add(key)
            kept.append(place)
    return points if len(kept) == len(points) else points.picked(kept)


def point_key(step: int, time: float, value: float) -> tuple[object, ...]:
    """Equal for points that repeat each other: NaN is like NaN."""
    return step, time, value if value == value else None  # noqa: PLR0124 - false for NaN


class FolderSummaries:
    """Follows all points written into one folder and keeps only a summary per metric. Missing steps are counted from 0.

    `unclear` are the metrics whose points may repeat each other, or lack steps in several files: their summary counts
    every point, and only a reader that knows all points has the exact one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summaries: dict[str, Summary] = {}
        self.first_steps: dict[str, int] = {}  # the smallest step of each metric
        self.counted: set[str] = set()  # metrics with points without a step
        self.unclear: set[str] = set()
        self._files: dict[str, PointFile] = {}
        self._guards: dict[str, RepeatGuard] = {}
        self._writers: dict[str, PointFile] = {}  # the first file of each metric
        self._shared: set[str] = set()  # metrics in several files

    def poll(self, longest_s: float | None = None) -> set[str]:
        """The metrics with new points. After about this many seconds, the rest is left for the next call."""
        deadline = inf if longest_s is None else monotonic() + longest_s
        changed: set[str] = set()
        for name in point_files(self.folder):
            file = self._files.setdefault(name, PointFile(self.folder / name))
            try:
                with closing(file.chunks()) as chunks:
                    for _ in chunks:
                        changed |= self._take(file)
                        if monotonic() >= deadline:
                            return changed
            except FileNotFoundError:
                continue  # its points were compacted meanwhile; they are already counted
        return changed

    def _take(self, file: PointFile) -> set[str]:
        """Add a file's columns to the summaries and empty them."""
        filled = {name: columns for name, columns in file.metrics.items() if columns.values}
        for name, columns in filled.items():
            before = self.summaries.get(name)
            points = columns
            if NO_STEP in columns.steps:
                steps = counted(columns.steps, before.step if before else None)
                points = Columns(steps, columns.times, columns.values)
                self.counted.add(name)
            if self._writers.setdefault(name, file) is not file:
                self._shared.add(name)
            is_new = self._guards.setdefault(name, RepeatGuard()).admits(columns.steps, columns.times)
            if not is_new or (name in self.counted and name in self._shared):
                self.unclear.add(name)
            lowest = min(points.steps)
            self.first_steps[name] = min(self.first_steps.get(name, lowest), lowest)
            self.summaries[name] = merged(before, summary_of(points))
            columns.clear()
        return set(filled)
