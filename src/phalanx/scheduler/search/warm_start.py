"""Results of earlier groups, as the first entries of a new search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phalanx.errors import CallError
from phalanx.insight.trial_metric import TrialMeasure, value_of
from phalanx.scheduler.group_state import read_state
from phalanx.scheduler.ledger import Ledger
from phalanx.store import Run
from phalanx.store.statuses import Status
from phalanx.tune.history import REPORTED
from phalanx.tune.space import Dimension


def earlier_trials(
    ledger: Ledger, group: Run, names: Iterable[str], dimensions: Sequence[Dimension], measure: TrialMeasure
) -> list[dict[str, Any]]:
    """The ended trials of other groups that fit the matrix of this one and have its metric. Raises CallError if a group
    does not exist."""
    home, store = ledger.home, ledger.store
    found = []
    for name in names:
        other = store.find(name)
        if other.kind != group.kind:
            raise CallError(f"`warm_start`: run {other.id} is not a group")
        state = read_state(home, other, store.facts(other.id).get("search") or {})
        for trial in state.history.trials:
            if trial.state != REPORTED or not fits(dimensions, trial.params):
                continue
            runs = [run for run in state.runs_of(other.id, trial.number) if store.status_of(run) == Status.SUCCEEDED]
            values = [value_of(home.run(run).path, store.summaries(run), measure) for run in runs]
            finite = [value for value in values if value is not None and math.isfinite(value)]
            if finite:
                about = {"why": f"trial {trial.number} of group {other.id}", "same_code": other.commit == group.commit}
                made = {"value": math.fsum(finite) / len(finite), "run": runs[0], "repeats": len(finite)}
                found.append({"params": dict(trial.params), **made, **about})
    return found


def fits(dimensions: Sequence[Dimension], params: Mapping[str, Any]) -> bool:
    """Whether a point lies in the matrix."""
    return all(dimension.name in params and _allows(dimension, params[dimension.name]) for dimension in dimensions)


def _allows(dimension: Dimension, value: Any) -> bool:
    if dimension.values is not None:
        return value in dimension.values
    if not isinstance(value, int | float):
        return False
    low, high = dimension.arguments.get("low"), dimension.arguments.get("high")
    if low is None or high is None:
        return True  # a normal distribution has no ends
    if "log" in dimension.kind:
        return value > 0 and low <= math.log(value) <= high
    return low <= value <= high
