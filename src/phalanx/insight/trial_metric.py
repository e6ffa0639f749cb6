"""The one number by which a search compares a trial: which value of its metric, and of which rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
