"""The values of metrics while trials run, and how each trial compares with the others at the same report.

Standard library only, Python 3.8+.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import NamedTuple


class Extremes(NamedTuple):
    """The lowest and the highest value of a metric, and whose they are."""

    low: float = math.inf
    lowest: int = -1
    high: float = -math.inf
    highest: int = -1

    def with_value(self, trial: int, value: float) -> Extremes:
        found = self
        if value < found.low:
            found = found._replace(low=value, lowest=trial)
        if value > found.high:
            found = found._replace(high=value, highest=trial)
        return found


class Curve:
    """One metric of one trial: after each report its mean, lowest and highest value so far."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.total = 0.0
        self.means: list[float] = []
        self.lows: list[float] = []
        self.highs: list[float] = []

    def __len__(self) -> int:
        return len(self.means)

    def best(self, report: int, maximize: bool) -> float:
        """The best value up to a report, counted from 1."""
        return (self.highs if maximize else self.lows)[report - 1]


class Curves:
    """All curves of a search, by metric (empty: the metric of the search) and trial."""

    def __init__(self) -> None:
        self.of: dict[str, dict[int, Curve]] = {}
        self.extremes: dict[str, Extremes] = {}
        # metric -> number of the report -> means, lows and highs of all trials that reached it, sorted
        self._columns: dict[str, list[tuple[list[float], list[float], list[float]]]] = {}

    def note(self, trial: int, value: float, metric: str = "") -> None:
        """A value that is no part of a curve, such as the reported one."""
        if not math.isnan(value):
            self.extremes[metric] = self.extremes.get(metric, Extremes()).with_value(trial, value)

    def add(self, metric: str, trial: int, step: int, value: float) -> None:
        curve = self.of.setdefault(metric, {}).setdefault(trial, Curve())
        if (curve.last_step is not None and step <= curve.last_step) or math.isnan(value):
            return  # logged again after a restart, or no number
        curve.last_step = step
        curve.total += value
        curve.means.append(curve.total / (len(curve) + 1))
        curve.lows.append(min(value, curve.lows[-1] if curve.lows else value))
        curve.highs.append(max(value, curve.highs[-1] if curve.highs else value))
        columns = self._columns.setdefault(metric, [])
        if len(columns) < len(curve):
            columns.append(([], [], []))
        for column, number in zip(columns[len(curve) - 1], (curve.means[-1], curve.lows[-1], curve.highs[-1])):
            insort(column, number)
        self.note(trial, value, metric)

    def means_of_others(self, metric: str, trial: int, report: int) -> list[float]:
        """The means so far of all other trials at a report, sorted."""
        return _without(self._columns[metric][report - 1][0], self.of[metric][trial].means[report - 1])

    def bests_of_others(self, metric: str, trial: int, report: int, maximize: bool) -> list[float]:
        """The best values so far of all other trials at a report, sorted."""
        column = self._columns[metric][report - 1][2 if maximize else 1]
        return _without(column, self.of[metric][trial].best(report, maximize))


def _without(numbers: list[float], one: float) -> list[float]:
    place = bisect_left(numbers, one)
    return numbers[:place] + numbers[place + 1 :]
