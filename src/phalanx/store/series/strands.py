"""Strands: ranges of one series, in memory or compacted, with one interface; and what is computed from them.

A line is a list of strands in the order of time. Every query (points, a range of steps, buckets, a summary) uses leaves
first, and points only where a leaf is not fine enough.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from phalanx.errors import CallError, SystemFault
from phalanx.spool import NO_STEP
from phalanx.store.records import Summary
from phalanx.store.series.leaves import LEAF_ROWS, Bucket, Leaf, Leaves, leaf_bounds, leaf_of
from phalanx.store.series.points import LAST_STEP, Columns
from phalanx.store.series.summaries import RepeatGuard, counted, distinct, last_place

After = Callable[[], int | None]


class Point(NamedTuple):
    step: int
    time: float
    value: float
    attempt: int


class Strand(Protocol):
    """At least one point of one series of one attempt."""

    attempt: int

    @property
    def rows(self) -> int: ...

    def total(self) -> Leaf:
        """All of it as one leaf."""

    def leaves(self) -> Leaves:
        """One per 256 points; the last may have fewer."""

    def points(self, first: int, last: int) -> Columns:
        """Raises CallError when they cannot be read."""


class MemoryStrand:
    """Points in memory, which may grow."""

    def __init__(self, columns: Columns, attempt: int) -> None:
        self.columns = columns
        self.attempt = attempt
        self._leaves: Leaves | None = None
        self._rows = 0  # number of points in the leaves
        self._total: Leaf | None = None

    @property
    def rows(self) -> int:
        return len(self.columns)

    def total(self) -> Leaf:
        if self._total is None or self._total.rows != self.rows:
            held = self.columns
            few = self.rows <= LEAF_ROWS
            self._total = leaf_of(held.steps, held.times, held.values) if few else self.leaves().folded()
        return self._total

    def leaves(self) -> Leaves:
        if self._leaves is None:
            self._leaves = Leaves()
        if self._rows != self.rows:
            whole = self._rows // LEAF_ROWS
            self._leaves.shorten(whole)
            self._rows = self.rows
            self._leaves.add(self.columns, leaf_bounds(self._rows, whole * LEAF_ROWS))
        return self._leaves

    def points(self, first: int, last: int) -> Columns:
        return self.columns.cut(first, last)


class CutStrand:
    """Some of the leaves of another strand."""

    def __init__(self, strand: Strand, first_leaf: int, last_leaf: int) -> None:
        self.attempt = strand.attempt
        self.rows = min(last_leaf * LEAF_ROWS, strand.rows) - first_leaf * LEAF_ROWS
        self._strand = strand
        self._first, self._last = first_leaf, last_leaf

    def total(self) -> Leaf:
        return self.leaves().folded()

    def leaves(self) -> Leaves:
        return self._strand.leaves().cut(self._first, self._last)

    def points(self, first: int, last: int) -> Columns:
        begin = self._first * LEAF_ROWS
        return self._strand.points(begin + first, begin + last)


def within(strand: Strand, low: int, high: int, *, roughly: bool = False) -> list[Strand]:
    """The part of a strand with steps from `low` to `high`, both included. With `roughly`, a leaf whose points cannot
    be read is included as a whole or not at all, by its first step."""
    total = strand.total()
    if low <= total.low_step and total.high_step <= high:
        return [strand]
    if high < total.low_step or total.high_step < low:
        return []
    leaves = strand.leaves()
    lows, highs, firsts = leaves.columns[4], leaves.columns[5], leaves.columns[2]
    found: list[Strand] = []
    begin = None  # start of the whole leaves that are not in `found` yet
    for place in range(len(leaves)):
        whole = low <= lows[place] and highs[place] <= high
        part: list[Strand] = []
        if not whole and lows[place] <= high and low <= highs[place]:
            try:
                part = _partly(strand, place, low, high)
            except (CallError, SystemFault):
                if not roughly:
                    raise
                whole = low <= firsts[place] <= high
        if whole and begin is None:
            begin = place
        elif not whole and begin is not None:
            found.append(CutStrand(strand, begin, place))
            begin = None
        found += part
    if begin is not None:
        found.append(CutStrand(strand, begin, len(leaves)))
    return found


def _partly(strand: Strand, leaf: int, low: int, high: int) -> list[Strand]:
    points = _leaf(strand, leaf)
    kept = [place for place, step in enumerate(points.steps) if low <= step <= high]
    return [MemoryStrand(points.picked(kept), strand.attempt)] if kept else []


def _leaf(strand: Strand, place: int) -> Columns:
    return strand.points(place * LEAF_ROWS, min((place + 1) * LEAF_ROWS, strand.rows))


def points_of(strands: Sequence[Strand]) -> Columns:
    found = Columns()
    for strand in strands:
        found.extend(strand.points(0, strand.rows))
    return found


def total_of(strands: Sequence[Strand]) -> Leaf | None:
    if len(strands) < 2:
        return strands[0].total() if strands else None
    totals = Leaves()
    for strand in strands:
        totals.append(strand.total())
    return totals.folded()


def buckets_of(strands: Sequence[Strand], count: int) -> list[Bucket]:
    """At most this many. Made from the points where leaves would give less than half as many, unless the points cannot
    be read."""
    rows = sum(strand.rows for strand in strands)
    if not rows:
        return []
    if 2 * rows < count * LEAF_ROWS:
        try:
            points = points_of(strands)
        except (CallError, SystemFault):
            pass  # no pyarrow: coarse is better than nothing
        else:
            return Leaves.each(points).buckets(count)
    leaves = strands[0].leaves()
    if len(strands) > 1:
        leaves = leaves.cut(0, len(leaves))
        for strand in strands[1:]:
            leaves.extend(strand.leaves())
    return leaves.buckets(count)


def summary_of_line(strands: Sequence[Strand]) -> Summary | None:
    """The summary by the rule in `summaries`. The last point is usually the one at the end; otherwise, it is read."""
    total = total_of(strands)
    if total is None:
        return None
    low, high = (total.min, total.max) if total.odd < total.rows else (None, None)
    last = Point(total.last_step, total.last_time, total.last, strands[-1].attempt)
    if total.last_step != total.high_step or total.last_time != total.high_time:
        with suppress(CallError, SystemFault):  # no pyarrow here: only the leaves
            last = latest(strands, LAST_STEP) or last
    return Summary(last.value, low, high, total.rows, last.step, last.time)


def latest(strands: Sequence[Strand], step: int) -> Point | None:
    """The last point up to a step, by the rule in `summaries`. Few leaves are read."""
    reached: list[tuple[int, Strand, int]] = []  # the largest step of each leaf that can have it
    for strand in strands:
        leaves = strand.leaves()
        for place, (low, high) in enumerate(zip(leaves.columns[4], leaves.columns[5], strict=True)):
            if low <= step and (not reached or min(step, high) >= reached[-1][0]):
                largest = high if high <= step else max(one for one in _leaf(strand, place).steps if one <= step)
                if not reached or largest >= reached[-1][0]:
                    reached.append((largest, strand, place))
    found: list[Point] = []
    for largest, strand, place in reached:
        if largest == reached[-1][0]:
            points = _leaf(strand, place)
            points = points.picked(row for row, given in enumerate(points.steps) if given == largest)
            row = last_place(points.steps, points.times)
            found.append(Point(largest, points.times[row], points.values[row], strand.attempt))
    return max(reversed(found), key=lambda point: point.time, default=None)


class MergedStrand:
    """The points of one series from the files of one replica's attempt, in the order of time, each with a step. It
    grows with the files."""

    def __init__(self, sources: Sequence[Columns], attempt: int) -> None:
        self.sources = list(sources)
        self.strand = MemoryStrand(Columns(), attempt)
        self._lengths: list[int] = []
        self._steps: array[int] | None = None  # separate columns, once steps must be counted
        self._guard = RepeatGuard()
        self._is_plain = len(self.sources) == 1  # a single file that repeats no point: its own columns are used

    def grow(self, after: After, largest: int | None = None) -> MemoryStrand:
        """`after` returns the largest step of the attempt before, `largest` is that of the attempt's other points."""
        lengths = list(map(len, self.sources))
        if lengths != self._lengths:
            if self._is_plain:
                source, done = self.sources[0], sum(self._lengths)
                self._is_plain = self._guard.admits(source.steps[done:], source.times[done:])
            if self._is_plain:
                self._follow(self.sources[0], after, largest)
            else:
                self.strand = MemoryStrand(self._merged(after, largest), self.strand.attempt)
            self._lengths = lengths
        return self.strand

    def _follow(self, source: Columns, after: After, largest: int | None) -> None:
        done = sum(self._lengths)
        fresh = source.steps[done:]
        if self._steps is None and NO_STEP in fresh:
            self._steps = source.steps[:done]
        if self._steps is not None:
            if done:
                self._steps.extend(counted(fresh, max(self._steps)))
            else:
                self._steps.extend(counted(fresh, largest, after()))
        held = self.strand.columns
        held.steps = source.steps if self._steps is None else self._steps
        held.times, held.values = source.times, source.values

    def _merged(self, after: After, largest: int | None) -> Columns:
        merged = distinct(in_order_of_time(self.sources))
        if NO_STEP in merged.steps:
            merged.steps = counted(merged.steps, largest, after())
        return merged


def in_order_of_time(sources: Sequence[Columns]) -> Columns:
    """All points, each source in its own order, even if its clock went back."""
    ordered = sorted((source for source in sources if source.values), key=lambda source: source.times[0])
    joined, moments = Columns(), array("d")
    for source in ordered:
        joined.extend(source)
        moments.extend(accumulate(source.times, max))
    order = sorted(range(len(moments)), key=moments.__getitem__)
    return joined.picked(order)


def follow_each_other(strands: Sequence[Strand]) -> bool:
    """Whether each ends before the next one begins."""
    totals = [strand.total() for strand in strands]
    return all(one.high_time < other.first_time for one, other in pairwise(totals))


def in_line(strands: Sequence[Strand]) -> list[Strand]:
    """Strands of one attempt as a line: consecutive in time, or merged."""
    if len(strands) < 2:
        return list(strands)
    ordered = sorted(strands, key=lambda strand: strand.total().first_time)
    if follow_each_other(ordered):
        return ordered
    try:
        sources = [strand.points(0, strand.rows) for strand in ordered]
    except (CallError, SystemFault):
        return ordered  # no pyarrow: nearly in order is better than nothing
    return [MemoryStrand(distinct(in_order_of_time(sources)), ordered[0].attempt)]
