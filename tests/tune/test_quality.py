"""Searches over real learning curves: 384 networks on scikit-learn's digits, 27 epochs each."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from phalanx.tune.model import SearchSettings
from phalanx.tune.simulation import Simulation
from tests.tune.helpers import LOSS, RESOURCE, listed

TABLE = Path(__file__).resolve().parents[2] / "benchmarks" / "learning_curves.csv"
HEADER, *ROWS = csv.reader(TABLE.read_text(encoding="utf-8").splitlines())
LOSSES = {tuple(map(float, row[:4])): tuple(map(float, row[4:])) for row in ROWS}
SPACE = tuple(listed(HEADER[place], *sorted({key[place] for key in LOSSES})) for place in range(4))
EPOCHS = 27


def loss(params: Mapping[str, Any], epochs: float | None) -> float:
    return LOSSES[tuple(params[name] for name in HEADER[:4])][int(epochs or EPOCHS) - 1]


def regret(algorithm: str, seed: int, epochs: float) -> float:
    """How much worse the configuration that looks best after so many epochs is than the best of all, both trained."""
    options = {"max_iter": EPOCHS, "eta": 3, "resource": RESOURCE, "resume": True}
    if algorithm == "random_search":
        options, epochs = {}, epochs / EPOCHS
    made = SearchSettings(algorithm, SPACE, options, seed, len(LOSSES), LOSS)
    found = Simulation(made, loss, 4).run(epochs)
    ends = [(value, trial) for *_, trial, value in found.ends if value is not None]
    return loss(found.history.trials[min(ends)[1]].params, None) - min(curve[-1] for curve in LOSSES.values())


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_rungs_find_a_better_network_than_random_search_in_the_same_epochs(name: str) -> None:
    ours, plain = (
        statistics.median(regret(algorithm, seed, 270) for seed in range(9)) for algorithm in (name, "random_search")
    )
    assert ours < 0.75 * plain
