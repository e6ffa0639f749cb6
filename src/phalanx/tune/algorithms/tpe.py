"""TPE: optuna's tree-structured Parzen estimator, asked once for each trial with a study made from the history."""

from __future__ import annotations

from typing import Any

from phalanx.tune import surrogates
from phalanx.tune.model import Create, Finish
from phalanx.tune.space import Axis, seed_number
from phalanx.tune.view import SearchView

PACKAGES = ("optuna",)
N_INITIAL = 10


def next_action(view: SearchView) -> Create | Finish | None:
    n_initial = view.settings.options.get("n_initial_trials", N_INITIAL)
    return surrogates.next_action(view, n_initial, suggest, n_results=n_initial)


def suggest(view: SearchView, attempt: int) -> dict[str, Any] | None:
    optuna = surrogates.package("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = surrogates.axes(view)
    distributions = {axis.dimension.name: _distribution(optuna, axis) for axis in made}
    sampler = optuna.samplers.TPESampler(
        seed=seed_number(view.settings.seed, "tpe", view.number, attempt), n_startup_trials=1
    )
    study = optuna.create_study(sampler=sampler)
    state = optuna.trial.TrialState
    found = {result.trial.number: (state.COMPLETE, result.loss) for result in surrogates.results(view)}
    sign = -1.0 if view.maximize else 1.0
    for trial in surrogates.stopped(view):
        found[trial.number] = (state.PRUNED, sign * (trial.value or 0.0))
    found.update(dict.fromkeys(view.history.running, (state.RUNNING, 0.0)))
    for number, (ended, loss) in sorted(found.items()):
        params = view.history.trials[number].params
        study.add_trial(
            optuna.trial.create_trial(
                state=ended,
                params={axis.dimension.name: _inner(axis, params[axis.dimension.name]) for axis in made},
                distributions=distributions,
                value=loss if ended == state.COMPLETE else None,
                intermediate_values={0: loss} if ended == state.PRUNED else None,
            )
        )
    asked = study.ask(distributions).params
    return {axis.dimension.name: _outer(axis, asked[axis.dimension.name]) for axis in made}


def _distribution(optuna: Any, axis: Axis) -> Any:
    """Listed values by their index, distributions by their position."""
    if axis.order is None:
        return optuna.distributions.FloatDistribution(0.0, 1.0)
    if axis.is_category:
        return optuna.distributions.CategoricalDistribution(tuple(range(len(axis.order))))
    return optuna.distributions.IntDistribution(0, len(axis.order) - 1)


def _inner(axis: Axis, value: Any) -> float:
    return axis.position(value) if axis.order is None else axis.place(value)


def _outer(axis: Axis, inner: float) -> Any:
    return axis.value(inner) if axis.order is None else axis.order[int(inner)]
