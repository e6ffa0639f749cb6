"""What the model-based algorithms share: random points first, then suggestions of a model of the results so far.

Standard library only, Python 3.8+: the packages of the extra are imported where a suggestion is made.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, Callable, Dict, NamedTuple, Optional

from phalanx.tune.history import REPORTED, STOPPED, SearchTrial
from phalanx.tune.model import Create, Finish
from phalanx.tune.space import Axis, point_key
from phalanx.tune.view import SearchView

_TRIES = 5  # suggestions that repeat a point before a random one is taken

# The next point for a view; the number tells apart several tries for the same trial
Suggest = Callable[[SearchView, int], Optional[Dict[str, Any]]]


class MissingPackage(ImportError):
    """A package that the algorithm needs cannot be imported; `name` is the package."""


def package(name: str) -> Any:
    """A module of an optional package."""
    try:
        return import_module(name)
    except ImportError as fault:
        missing = (fault.name or name).partition(".")[0]
        raise MissingPackage(str(fault), name=missing) from None


class Result(NamedTuple):
    """A trial with its loss: lower is better, also for a metric that is maximised."""

    trial: SearchTrial
    loss: float


def results(view: SearchView) -> list[Result]:
    """All trials with a value, in order of their number. A value that is no number counts as the worst one seen."""
    sign = -1.0 if view.maximize else 1.0
    found = [
        Result(trial, sign * trial.value)
        for trial in view.history.trials
        if trial.state == REPORTED and trial.value is not None
    ]
    finite = [result.loss for result in found if math.isfinite(result.loss)]
    if not finite:
        return []
    worst = max(finite)
    return [result if math.isfinite(result.loss) else Result(result.trial, worst) for result in found]


def stopped(view: SearchView) -> list[SearchTrial]:
    """Trials that were stopped early and had a value."""
    return [t for t in view.history.trials if t.state == STOPPED and t.value is not None and math.isfinite(t.value)]


def axes(view: SearchView) -> list[Axis]:
    return [Axis(dimension) for dimension in view.settings.dimensions]


def next_action(view: SearchView, n_initial: int, suggest: Suggest, n_results: int) -> Create | Finish | None:
    """A random trial as long as there are fewer than `n_initial` trials or `n_results` results, else one that the
    model suggests."""
    wanted = view.n
    if wanted is None:
        return Finish(f"{view.settings.algorithm} needs the number of trials", "failed")
    if view.size is not None:
        wanted = min(wanted, view.size)
    if view.n_created >= wanted + view.n_replaced(wanted):
        return view.finish()
    known, reported = view.history.points(view.names), view.history.counts[REPORTED]
    if view.n_created >= n_initial and reported >= n_results:
        for attempt in range(_TRIES):
            point = suggest(view, attempt)
            if point is not None and point_key(point, view.names) not in known:
                said = f"suggested from {reported} results, with {len(view.history.running)} trials running"
                return view.create(point, f"trial {view.count_words(wanted)}: {said}")
    found = view.new_point()
    if found is None:
        return view.finish()
    return view.create(found, f"trial {view.count_words(wanted)}: a random point")
