"""Population based training: after each interval the worst runs go on from the checkpoint of one of the best, with
changed params.

All runs of the population end an interval before the next one starts, so a decision does not depend on which was
faster. Runs that copy come first: the checkpoint that they copy is not yet trained further.
"""

from __future__ import annotations

import math
from typing import Any

from phalanx.tune.history import FAILED, INVALID, REPORTED, RUNNING, Rung, SearchTrial
from phalanx.tune.model import Create, Finish, Promote
from phalanx.tune.space import Axis, Dimension, chance, value_at
from phalanx.tune.view import SearchView

_QUANTILE = 0.25
_RESAMPLE = 0.25
_FACTORS = (0.8, 1.2)


def full_resource(view: SearchView) -> float:
    return float(view.settings.options["max_iter"])


def next_action(view: SearchView) -> Create | Promote | Finish | None:
    options = view.settings.options
    interval, last = options["interval"], math.ceil(options["max_iter"] / options["interval"] - 1e-9) - 1
    wanted = view.n
    if wanted is None:
        return Finish("pbt needs `n_experiments`", "failed")
    first = view.history.rung(0, 0)
    standing = len(first.members) - first.counts[FAILED] - first.counts[INVALID]
    if standing < wanted + min(0, view.may_fail(wanted) - first.counts[FAILED]):
        point = view.new_point()
        if point is not None:
            amount = min(interval, options["max_iter"])
            return view.create(point, f"run {standing + 1} of a population of {wanted}", amount)
    for place in range(last):
        rung = view.history.rung(0, place)
        if rung.counts[RUNNING]:
            return None
        found = _continuation(view, rung, place, min(interval * (place + 2), options["max_iter"]))
        if found is not None:
            return found
    return view.finish()


def _continuation(view: SearchView, rung: Rung, place: int, amount: float) -> Promote | None:
    """The next run of a finished interval that goes on: those that copy another one first."""
    ended = [trial for trial in rung.members if trial.rung > place or trial.state == REPORTED]
    if all(trial.rung > place for trial in ended):
        return None
    ranked = [number for _, number in rung.ranking(view.maximize)]
    count = int(len(ended) * view.settings.options.get("quantile", _QUANTILE))
    best = [view.history.trials[number] for number in ranked[: max(1, count)]]
    order = [*ranked, *sorted({trial.number for trial in ended} - set(ranked))]  # those without a value are the last
    n_worst = max(count, len(order) - len(ranked))
    worst = set(order[len(order) - n_worst :]) - {trial.number for trial in best}
    waiting = [trial for trial in ended if trial.rung == place]
    waiting.sort(key=lambda trial: (trial.number not in worst, trial.number))
    trial = waiting[0]
    if trial.number not in worst or not best:
        return view.promote(trial.number, amount, f"goes on to {amount:g}", resume=True)
    source = best[int(chance(view.settings.seed, "source", trial.number, place) * len(best))]
    why = (
        f"{_shown(trial, place)} is among the worst of {len(ended)}: goes on to {amount:g} from the checkpoint of "
        f"trial {source.number} ({_shown(source, place)}), with changed params"
    )
    made = view.promote(trial.number, amount, why, resume=True)
    changed = {
        dimension.name: _explored(view, dimension, source.params[dimension.name], trial.number, place)
        for dimension in view.settings.dimensions
    }
    return made._replace(params={**changed, **made.params}, source=source.number)


def _shown(trial: SearchTrial, place: int) -> str:
    value = trial.values.get(place)
    return "no value" if value is None else f"{value:.6g}"


def _explored(view: SearchView, dimension: Dimension, value: Any, trial: int, place: int) -> Any:
    """A value near another one: times 0.8 or 1.2, the next of a list, or drawn anew."""
    about = (view.settings.seed, "explore", dimension.name, trial, place)
    resample = view.settings.options.get("resample_probability", _RESAMPLE)
    if chance(*about, "resample") < resample:
        return value_at(dimension, chance(*about, "value"))
    up = chance(*about, "up") < 0.5
    axis = Axis(dimension)
    if axis.order is not None:
        if axis.is_category:
            return value
        return axis.order[min(max(axis.place(value) + (1 if up else -1), 0), len(axis.order) - 1)]
    moved = float(value) * _FACTORS[up]
    return axis.value(axis.position(moved))
