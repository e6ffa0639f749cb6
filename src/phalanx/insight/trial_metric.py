"""The one number by which a search compares a trial: which value of its metric, and of which rank."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from phalanx.store import Summary


class TrialMeasure(NamedTuple):
    """`is_best`: the best value, instead of the last one. `step`: the value at this step, or the last before it.
    `ranks`: `first` (the lowest rank that logs it), or the `mean`, `max` or `min` over the ranks."""

    name: str
    maximize: bool = True
    is_best: bool = False
    step: int | None = None
    ranks: str = "first"


def value_of(run_folder: Path, summaries: Mapping[str, Summary], measure: TrialMeasure) -> float | None:
    """The value of a run; None if it did not log the metric, NaN if it has no finite value."""
    found = summaries.get(measure.name)
    if found is None:
        return None
    if measure.step is None and measure.ranks == "first":
        if not measure.is_best:
            return found.last
        best = found.max if measure.maximize else found.min
        return math.nan if best is None else best
    values = _of_ranks(run_folder, measure)
    if not values or measure.ranks == "first":
        return values[0] if values else None
    if any(math.isnan(value) for value in values):
        return math.nan
    return {"mean": lambda: sum(values) / len(values), "max": lambda: max(values), "min": lambda: min(values)}[
        measure.ranks
    ]()


def _of_ranks(run_folder: Path, measure: TrialMeasure) -> list[float]:
    """The value of each rank that logged the metric."""
    from phalanx.store.series.run_series import RunSeries

    series = RunSeries(run_folder)
    if measure.step is not None:
        at = series.at(measure.name, measure.step)
        return [at[replica].value for replica in series.replicas(measure.name) if replica in at]
    return [_of_line([*line.values], measure) for line in series.series(measure.name) if line.values]


def _of_line(values: list[float], measure: TrialMeasure) -> float:
    if not measure.is_best:
        return values[-1]
    finite = [value for value in values if math.isfinite(value)]
    return (max if measure.maximize else min)(finite, default=math.nan)


# quantiles of Student's t distribution at 97.5 %, for 1, 2, … degrees of freedom
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of repeated runs, by Student's t distribution; None for less than two of them."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    freedom = len(values) - 1
    quantile = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.37 / freedom + 2.8 / freedom**2
    mean = statistics.fmean(values)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half
