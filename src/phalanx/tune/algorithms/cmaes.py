"""CMA-ES: the covariance matrix adaptation evolution strategy of the package `cmaes`, which optuna uses, too.

A trial's `bracket` is its generation. A generation is over when as many trials as its population have reported; the
first to report count, so the state of the strategy follows from the journal. Values without order are drawn at random.
"""

from __future__ import annotations

import math
from typing import Any

from phalanx.tune import surrogates
from phalanx.tune.history import REPORTED, SearchTrial
from phalanx.tune.model import Create, Finish
from phalanx.tune.space import Axis, draw, seed_number
from phalanx.tune.view import SearchView

PACKAGES = ("cmaes", "numpy")
_SIGMA = 0.25
_WORST = 1e300


def next_action(view: SearchView) -> Create | Finish | None:
    found = surrogates.next_action(view, 0, suggest, n_results=0)
    if isinstance(found, Create):
        return found._replace(bracket=_finished(view, _population(view)))
    return found


def _ordered(view: SearchView) -> list[Axis]:
    return [axis for axis in surrogates.axes(view) if not axis.is_category]


def _population(view: SearchView) -> int:
    """Of one generation: by the file, or the usual 4 + 3 ln(number of dimensions)."""
    dimensions = max(2, len(_ordered(view)))
    return int(view.settings.options.get("population", 4 + int(3 * math.log(dimensions))))


def _told(view: SearchView, generation: int, population: int) -> list[SearchTrial]:
    """The first trials of a generation that reported; empty until it is complete."""
    ended = [
        trial
        for trial in view.history.rung(generation, 0).members
        if trial.state == REPORTED and trial.value is not None and not trial.added
    ]
    ended.sort(key=lambda trial: trial.ended)
    return ended[:population] if len(ended) >= population else []


def _finished(view: SearchView, population: int) -> int:
    """How many generations are complete."""
    generation = 0
    while _told(view, generation, population):
        generation += 1
    return generation


def suggest(view: SearchView, attempt: int) -> dict[str, Any] | None:
    cmaes, numpy = surrogates.package("cmaes"), surrogates.package("numpy")
    ordered = _ordered(view)
    width = max(2, len(ordered))  # it works in at least two dimensions; one that is not there has no effect
    population = _population(view)
    strategy = cmaes.CMA(
        mean=numpy.full(width, 0.5),
        sigma=float(view.settings.options.get("sigma", _SIGMA)),
        bounds=numpy.array([[0.0, 1.0]] * width),
        population_size=population,
        seed=seed_number(view.settings.seed, "cmaes"),
    )
    sign = -1.0 if view.maximize else 1.0
    for generation in range(_finished(view, population)):
        told = []
        for trial in _told(view, generation, population):
            places = [axis.position(trial.params[axis.dimension.name]) for axis in ordered]
            loss = sign * (trial.value or 0.0)
            told.append((numpy.array(places + [0.5] * (width - len(places))), loss if math.isfinite(loss) else _WORST))
        strategy.tell(told)
    strategy.reseed_rng(seed_number(view.settings.seed, "cmaes", view.number, attempt))
    asked = strategy.ask()
    point = draw(view.settings.dimensions, view.settings.seed, view.number, attempt)
    return {**point, **{axis.dimension.name: axis.value(float(asked[i])) for i, axis in enumerate(ordered)}}
