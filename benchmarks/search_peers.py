"""The peers of `search_cost.py`: Optuna's samplers and pruners and Ray Tune's ASHA, through their own APIs."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from phalanx.tune.space import Dimension
from search_problems import Curves, Params, Problem


def _optuna() -> Any:
    optuna = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _suggested(trial: Any, dimension: Dimension) -> Any:
    """As a user of Optuna would write the dimension."""
    if dimension.values is None:
        return trial.suggest_float(dimension.name, dimension.arguments["low"], dimension.arguments["high"])
    values = dimension.values
    if any(isinstance(value, str) for value in values):
        return trial.suggest_categorical(dimension.name, values)
    return values[trial.suggest_int(dimension.name, 0, len(values) - 1)]


def optuna_tpe(problem: Problem, seed: int) -> float:
    optuna = _optuna()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(
        lambda trial: problem.loss({d.name: _suggested(trial, d) for d in problem.dimensions}), n_trials=problem.trials
    )
    return float(study.best_value)


ETA = 3
Track = list[tuple[float, float]]  # units used so far, and the final loss of the configuration that looks best


class _Incumbent:
    """Which configuration looks best: the one with the lowest loss seen at any epoch."""

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self.units = 0.0
        self.best = float("inf")
        self.track: Track = []

    def see(self, params: Params, loss: float, units: float) -> None:
        self.units += units
        if loss < self.best:
            self.best = loss
            self.track.append((self.units, self.curves.loss(params, None)))


def stopping_search(
    curves: Curves, units: float, slots: int, new: Callable[[], Any], goes_on: Callable[[Any, int, float], bool]
) -> Track:
    """A search that starts configurations and stops them: `slots` of them in turn, an epoch at a time."""
    found = _Incumbent(curves)
    running: list[tuple[Any, int]] = [(new(), 0) for _ in range(slots)]
    while found.units < units:
        trial, epoch = running.pop(0)
        loss = curves.loss(trial.params, epoch + 1)
        found.see(trial.params, loss, 1)
        is_over = not goes_on(trial, epoch + 1, loss) or epoch + 1 >= curves.epochs
        running.append((new(), 0) if is_over else (trial, epoch + 1))
    return found.track


def optuna_pruner(curves: Curves, seed: int, units: float, slots: int, kind: str) -> Track:
    """Optuna's Hyperband or successive halving pruner, with random configurations."""
    optuna = _optuna()
    if kind == "hyperband":
        pruner = optuna.pruners.HyperbandPruner(1, curves.epochs, ETA)
    else:
        pruner = optuna.pruners.SuccessiveHalvingPruner(1, ETA)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed), pruner=pruner)

    def new() -> Any:
        trial = study.ask()
        params = {
            d.name: (d.values or ())[trial.suggest_int(d.name, 0, len(d.values or ()) - 1)] for d in curves.dimensions
        }
        return SimpleNamespace(params=params, trial=trial)

    def goes_on(made: Any, epoch: int, loss: float) -> bool:
        made.trial.report(loss, epoch)
        if epoch >= curves.epochs:
            study.tell(made.trial, loss)
            return False
        if made.trial.should_prune():
            study.tell(made.trial, state=optuna.trial.TrialState.PRUNED)
            return False
        return True

    return stopping_search(curves, units, slots, new, goes_on)


def ray_asha(curves: Curves, seed: int, units: float, slots: int) -> Track:
    """Ray Tune's ASHA scheduler, told the results directly: no processes."""
    schedulers = import_module("ray.tune.schedulers")
    scheduler = schedulers.AsyncHyperBandScheduler(
        time_attr="epoch", metric="loss", mode="min", max_t=curves.epochs, grace_period=1, reduction_factor=ETA
    )
    drawn, number = random.Random(seed), [0]

    def new() -> Any:
        number[0] += 1
        params = {d.name: drawn.choice(d.values or ()) for d in curves.dimensions}
        trial = SimpleNamespace(params=params, trial_id=str(number[0]), config=params)
        scheduler.on_trial_add(None, trial)
        return trial

    def goes_on(trial: Any, epoch: int, loss: float) -> bool:
        result = {"epoch": epoch, "training_iteration": epoch, "loss": loss}
        if epoch >= curves.epochs:
            scheduler.on_trial_complete(None, trial, result)
            return False
        return bool(scheduler.on_trial_result(None, trial, result) == scheduler.CONTINUE)

    return stopping_search(curves, units, slots, new, goes_on)
