"""Searches and objectives that the tests of `tune` share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from phalanx.tune.model import Entry, Metric, SearchAction, SearchSettings
from phalanx.tune.simulation import Outcome, Played, Simulation
from phalanx.tune.space import Dimension, chance

LOSS = Metric("loss", maximize=False)
RESOURCE = {"name": "epochs", "type": "int"}


def uniform(name: str, low: float = 0.0, high: float = 1.0) -> Dimension:
    return Dimension(name, "uniform", arguments={"low": low, "high": high})


def listed(name: str, *values: Any) -> Dimension:
    return Dimension(name, "values", values=values)


MIXED = (
    uniform("lr"),
    listed("layers", 1, 2, 3, 4),
    listed("act", "relu", "tanh", "gelu"),
    Dimension("decay", "qloguniform", arguments={"low": -3, "high": 2, "q": 0.1}),
)


def settings(algorithm: str, *dimensions: Dimension, seed: int | str = 1, n: int | None = None, **options: Any) -> Any:
    """Settings of a search for the lowest loss."""
    return SearchSettings(algorithm, dimensions or MIXED, options, seed, n, LOSS)


def hyperband(max_iter: int = 27, eta: float = 3, *dimensions: Dimension, **options: Any) -> SearchSettings:
    found: SearchSettings = settings("hyperband", *dimensions, max_iter=max_iter, eta=eta, resource=RESOURCE, **options)
    return found


def asha(n: int = 40, max_iter: int = 27, eta: float = 3, **options: Any) -> SearchSettings:
    found: SearchSettings = settings("asha", n=n, max_iter=max_iter, eta=eta, resource=RESOURCE, **options)
    return found


def pbt(n: int = 8, max_iter: int = 20, interval: int = 4, **options: Any) -> SearchSettings:
    found: SearchSettings = settings("pbt", n=n, max_iter=max_iter, interval=interval, resource=RESOURCE, **options)
    return found


def objective(params: Mapping[str, Any], amount: float | None) -> float:
    """A loss that falls with the resource, best at lr 0.3, 3 layers and gelu."""
    place = abs(params.get("lr", 0.3) - 0.3) + abs(params.get("layers", 3) - 3) / 10
    return float(place) + (0.0 if params.get("act", "gelu") == "gelu" else 0.2) + 1 / (amount or 1)


def flaky(failing: float, infeasible: float, nan: float = 0.0) -> Any:
    """The same objective, for which a share of the attempts fail, of the points are invalid and of values are NaN."""

    def found(params: Mapping[str, Any], amount: float | None) -> float | Outcome:
        drawn = chance(sorted(params.items(), key=str), amount)
        if drawn < failing:
            return Outcome(None, cause="exit code 1")
        point = {name: value for name, value in params.items() if name != "epochs"}
        if chance(sorted(point.items(), key=str), "invalid") < infeasible:
            return Outcome(None, invalid="does not divide")
        return math.nan if drawn > 1 - nan else objective(params, amount)

    return found


def play(made: SearchSettings, found: Any = objective, concurrency: int = 4, **others: Any) -> Played:
    return Simulation(made, found, concurrency, **others).run()


def actions(entries: list[Entry]) -> list[SearchAction]:
    return [entry for entry in entries if type(entry).__name__ in ("Create", "Promote", "Stop", "Finish")]  # type: ignore[misc]
