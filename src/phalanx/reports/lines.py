"""The lines of a report's chart: one for each run, or one for each group of runs with equal params."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Protocol

from phalanx.reports.blocks import ChartBlock
from phalanx.store import Run
from phalanx.store.series.rank_statistics import Spread

BUCKETS = 300
NOTHING = "\N{EN DASH}"
MOST_BANDS = 6  # with more lines, bands hide one another


class RankSeries(Protocol):
    """Reads the series of a run, of a home or a server."""

    def replicas(self, metric: str) -> list[str]: ...

    def over_ranks(self, metric: str, count: int | None = None) -> list[Spread]: ...


@dataclass(frozen=True, slots=True)
class Line:
    """Columns of equal length. `odd`: places of values that are not finite."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    odd: tuple[float, ...] = ()


def lines_of(chart: ChartBlock, runs: Sequence[Run], series_of: Callable[[Run], RankSeries]) -> list[Line]:
    """All lines of a chart, in the order of its metrics and runs."""
    readers = {run.id: series_of(run) for run in runs}
    found: list[Line] = []
    for metric in chart.metrics:
        of_runs = {run.id: line for run in runs if (line := _run_line(chart, metric, run, readers[run.id])) is not None}
        lines = _grouped(chart, runs, of_runs) if chart.by else list(of_runs.values())
        is_only = len(chart.metrics) == 1
        found += lines if is_only else [replace(line, label=f"{line.label} · {metric}") for line in lines]
    if len(found) > MOST_BANDS and not chart.by:
        return [replace(line, low=(), high=()) for line in found]
    return found


def _run_line(chart: ChartBlock, metric: str, run: Run, series: RankSeries) -> Line | None:
    """The mean over the ranks, of the steps that all of them have reached."""
    of, rows = len(series.replicas(metric)), series.over_ranks(metric, BUCKETS)
    whole = [row for row in rows if row.ranks >= of] or rows
    places = _places(chart, whole, run, series)
    if not whole or places is None:
        return None
    odd = tuple(place for place, row in zip(places, whole, strict=True) if row.odd)
    mean, low, high = (tuple(_finite(getattr(row, name)) for row in whole) for name in ("mean", "min", "max"))
    return Line(run.name or run.id, places, mean, low, high, odd)


def _places(chart: ChartBlock, rows: Sequence[Spread], run: Run, series: RankSeries) -> tuple[float, ...] | None:
    """The x values: steps, seconds since the start, or another metric; None if the run did not log that."""
    if chart.x == "step":
        return tuple(float(row.last_step) for row in rows)
    if chart.x == "time":
        start = run.started_at.timestamp() if run.started_at else rows[0].last_time if rows else 0.0
        return tuple(row.last_time - start for row in rows)
    others = [(row.last_step, row.mean) for row in series.over_ranks(chart.x.removeprefix("metric."), BUCKETS)]
    known = [(float(step), value) for step, value in others if _finite(value) is not None]
    if not known:
        return None
    line = Line("", tuple(step for step, _ in known), tuple(value for _, value in known))
    return tuple(_value_at(line, min(max(row.last_step, line.x[0]), line.x[-1])) or 0.0 for row in rows)


def _grouped(chart: ChartBlock, runs: Sequence[Run], of_runs: dict[str, Line]) -> list[Line]:
    groups: dict[str, list[Line]] = {}
    for run in runs:
        if run.id in of_runs:
            label = ", ".join(f"{name} {value_text(run.params.get(name))}" for name in chart.by)
            groups.setdefault(label, []).append(of_runs[run.id])
    return [_mean(f"{label} ({len(members)})", members) for label, members in groups.items()]


def _mean(label: str, members: Sequence[Line]) -> Line:
    """The mean of several runs over all of their steps, with a band of one standard deviation."""
    places = sorted({x for line in members for x in line.x})
    every = max(1, math.ceil(len(places) / (2 * BUCKETS)))
    shown = tuple(places[::every])
    rows = [[value for line in members if (value := _value_at(line, x)) is not None] for x in shown]
    means = [fmean(row) if row else None for row in rows]
    spreads = [stdev(row) if len(row) > 1 else 0.0 for row in rows]
    pairs = list(zip(means, spreads, strict=True))
    low = tuple(None if mean is None else mean - spread for mean, spread in pairs)
    high = tuple(None if mean is None else mean + spread for mean, spread in pairs)
    return Line(label, shown, tuple(means), low, high, tuple(sorted(x for line in members for x in line.odd)))


def _value_at(line: Line, x: float) -> float | None:
    """Interpolated between points; None outside of them."""
    right = bisect_left(line.x, x)
    if right >= len(line.x):
        return None
    if line.x[right] == x:
        return line.y[right]
    if right == 0:
        return None
    before, after = line.y[right - 1], line.y[right]
    if before is None or after is None:
        return None
    share = (x - line.x[right - 1]) / (line.x[right] - line.x[right - 1])
    return before * (1 - share) + after * share


def smoothed(values: Sequence[float | None], weight: float) -> list[float | None]:
    """A bias-corrected exponential moving average, as on the page."""
    mean, weights = 0.0, 0.0
    found: list[float | None] = []
    for value in values:
        if value is not None:
            mean = weight * mean + (1 - weight) * value
            weights = weight * weights + (1 - weight)
        found.append(None if value is None else mean / weights)
    return found


def value_text(value: Any) -> str:
    return NOTHING if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
