"""Leaves: aggregates of 256 points of a series each, so that charts and summaries need not read the points.

A leaf holds the minimum, maximum, last value and sum, and where it starts and ends. Buckets for a chart are merged
leaves; a whole series is one more leaf. No value is sampled away: a spike of one point is the maximum of its leaf, and
so of every bucket that contains the leaf.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf, isfinite
from operator import sub, truediv
from typing import Any, NamedTuple

from phalanx.store.series.points import Columns

LEAF_ROWS = 256


class Bucket(NamedTuple):
    """Consecutive points of a line. Minimum, maximum and mean are over the finite values, None when there are none."""

    first_step: int
    last_step: int
    first_time: float
    last_time: float
    count: int  # type: ignore[assignment] # the usual word, though tuples have a method of that name
    min: float | None
    max: float | None
    mean: float | None
    last: float
    odd: int  # number of NaN or infinite values


class Leaf(NamedTuple):
    """Without a finite value, `min` is infinity and `max` minus infinity, so that leaves merge without special
    cases."""

    rows: int
    odd: int
    first_step: int
    last_step: int
    low_step: int
    high_step: int
    first_time: float
    last_time: float
    high_time: float
    min: float
    max: float
    sum: float
    last: float


WHOLE_COLUMNS = 6  # the first fields of a leaf are integers, the others floats
LEAF_COLUMNS = len(Leaf._fields)
LEAF_BYTES = 8 * LEAF_COLUMNS


def mean(total: float, count: int, low: float, high: float) -> float | None:
    """The mean, clamped to the range of the values: the sum may be rounded, or overflow."""
    if not count:
        return None
    middle = total / count
    if low <= middle <= high:
        return middle
    return min(max(middle, low), high) if abs(middle) >= 0 else low / 2 + high / 2  # NaN is neither


def leaf_of(steps: Sequence[int], times: Sequence[float], values: Sequence[float]) -> Leaf:
    """At least one point."""
    odd, low, high, total = _folded(values)
    return Leaf(
        len(values), odd, steps[0], steps[-1], min(steps), max(steps),
        times[0], times[-1], max(times), low, high, total, values[-1],
    )  # fmt: skip


def _folded(values: Sequence[float]) -> tuple[int, float, float, float]:
    """The number of non-finite values; minimum, maximum and sum of the others."""
    total = sum(values)
    if isfinite(total):  # one check of the sum instead of one per value
        return 0, min(values), max(values), total
    finite = [value for value in values if isfinite(value)]
    return len(values) - len(finite), min(finite, default=inf), max(finite, default=-inf), sum(finite)


class Leaves:
    """Many leaves, column by column."""

    __slots__ = ("columns",)

    def __init__(self, columns: list[array[Any]] | None = None) -> None:
        self.columns = columns or [array("q" if place < WHOLE_COLUMNS else "d") for place in range(LEAF_COLUMNS)]

    @classmethod
    def each(cls, points: Columns) -> Leaves:
        """One leaf per point."""
        steps, times, values = points.steps, points.times, points.values
        odds, lows, highs, sums = array("q", bytes(8 * len(values))), values, values, values
        if not isfinite(sum(values)):
            odds = array("q", [not isfinite(value) for value in values])
            lows = array("d", [inf if odd else value for odd, value in zip(odds, values, strict=True)])
            highs = array("d", [-inf if odd else value for odd, value in zip(odds, values, strict=True)])
            sums = array("d", [0.0 if odd else value for odd, value in zip(odds, values, strict=True)])
        ones = array("q", [1]) * len(values)
        return cls([ones, odds, steps, steps, steps, steps, times, times, times, lows, highs, sums, values])

    @classmethod
    def decode(cls, data: bytes) -> Leaves:
        length = len(data) // LEAF_COLUMNS
        leaves = cls()
        for place, column in enumerate(leaves.columns):
            column.frombytes(data[place * length : (place + 1) * length])
            if sys.byteorder == "big":
                column.byteswap()
        return leaves

    def encode(self) -> bytes:
        return b"".join(map(little_endian, self.columns))

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: int) -> Leaf:
        return Leaf._make(column[place] for column in self.columns)

    def append(self, leaf: Leaf) -> None:
        for column, value in zip(self.columns, leaf, strict=True):
            column.append(value)

    def add(self, points: Columns, bounds: Iterable[int]) -> None:
        """One leaf for the points between each two neighbouring bounds."""
        steps, times, values = points.steps, points.times, points.values
        for first, last in pairwise(bounds):
            leaf = leaf_of(steps[first:last].tolist(), times[first:last].tolist(), values[first:last].tolist())
            self.append(leaf)

    def cut(self, first: int, last: int) -> Leaves:
        return Leaves([column[first:last] for column in self.columns])

    def extend(self, other: Leaves) -> None:
        for column, more in zip(self.columns, other.columns, strict=True):
            column.extend(more)

    def shorten(self, length: int) -> None:
        for column in self.columns:
            del column[length:]

    def folded(self) -> Leaf:
        """All of them merged into one; there is at least one."""
        columns = self.columns
        return Leaf(
            sum(columns[0]), sum(columns[1]), columns[2][0], columns[3][-1], min(columns[4]), max(columns[5]),
            columns[6][0], columns[7][-1], max(columns[8]), min(columns[9]), max(columns[10]), sum(columns[11]),
            columns[12][-1],
        )  # fmt: skip

    def buckets(self, count: int) -> list[Bucket]:
        """At most this many buckets of whole leaves, whose numbers of leaves differ by at most one."""
        size = len(self)
        width, wider = divmod(size, min(count, size))
        middle = wider * (width + 1)
        return [*self._grouped(0, middle, width + 1), *self._grouped(middle, size, width)]

    def _grouped(self, first: int, last: int, width: int) -> Iterator[Bucket]:
        """Merge the leaves of a range in groups. Columns are processed as a whole: charts spend their time here."""

        def every(place: int, shift: int) -> array[Any]:
            return self.columns[place][first + shift : last : width]

        def folded(fold: Callable[..., Any], place: int) -> list[Any]:
            if width == 1:
                return every(place, 0).tolist()
            columns = [every(place, shift) for shift in range(width)]
            return list(map(sum, zip(*columns, strict=True)) if fold is sum else map(fold, *columns))

        rows, lows, highs, sums = folded(sum, 0), folded(min, 9), folded(max, 10), folded(sum, 11)
        means: Iterable[float | None]
        if any(self.columns[1]):
            odds = folded(sum, 1)
            means = list(map(mean, sums, map(sub, rows, odds), lows, highs))
            for place in [place for place, middle in enumerate(means) if middle is None]:
                lows[place] = highs[place] = None
        else:
            odds = [0] * len(rows)
            means = [
                middle if low <= middle <= high else mean(middle, 1, low, high)
                for middle, low, high in zip(map(truediv, sums, rows), lows, highs, strict=True)
            ]
        end = width - 1
        begun = (every(2, 0), every(3, end), every(6, 0), every(7, end))
        return map(Bucket._make, zip(*begun, rows, lows, highs, means, every(12, end), odds, strict=True))


def little_endian(column: array[Any]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def leaf_bounds(rows: int, first: int = 0) -> list[int]:
    """The bounds of the leaves of rows that start at a leaf."""
    return [*range(first, rows, LEAF_ROWS), rows]
