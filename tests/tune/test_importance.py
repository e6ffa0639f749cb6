"""PED-ANOVA, computed by hand and beside Optuna's."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import pytest

from phalanx.tune.importance import importance
from phalanx.tune.space import Dimension, draw

OPTIMIZER = Dimension("optimizer", "values", values=("adam", "sgd"))
RATE = Dimension("rate", "loguniform", arguments={"low": -9, "high": -1})
DROPOUT = Dimension("dropout", "uniform", arguments={"low": 0, "high": 0.5})
WIDTH = Dimension("width", "values", values=(16, 32, 64, 128))
BATCH = Dimension("batch", "quniform", arguments={"low": 0, "high": 20, "q": 1})


def trials(dimensions: tuple[Dimension, ...], count: int, seed: int) -> list[tuple[dict[str, Any], float]]:
    """The rate decides most, the optimizer something; some trials are not a number."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        point = draw(dimensions, seed, number)
        loss = abs(math.log(point["rate"]) + 5) + 0.7 * (point.get("optimizer") == "sgd") + chance.gauss(0, 0.1)
        found.append((point, math.nan if chance.random() < 0.1 else loss))
    return found


def test_two_categories_as_computed_by_hand() -> None:
    """Ten trials, five of each; the best one is adam. A category is a kernel of 1 with a prior of 1/(kernels + 1) on
    each category; the prior of weight 1 is one half each."""
    flat = Dimension("flat", "values", values=("x", "y"))
    results = [({"optimizer": "adam" if number < 5 else "sgd", "flat": "x"}, float(number)) for number in range(10)]
    found = importance((OPTIMIZER, flat), results, maximize=False)
    assert (found.trials, found.best) == (10, 1)
    # all: half and half. Best: (1 kernel: (1.5, 0.5) / 2 = 0.75, 0.25, and the prior: 0.5, 0.5) / 2 = 0.625, 0.375
    optimizer = 2 * 0.5 * 0.25**2
    # all: 10 times 0.75, 0.25, and the prior: 8/11, 3/11. Best: 0.625, 0.375
    flat_share = 8 / 11 * (0.625 / (8 / 11) - 1) ** 2 + 3 / 11 * (0.375 / (3 / 11) - 1) ** 2
    assert found.shares["optimizer"] == pytest.approx(optimizer / (optimizer + flat_share))


def test_what_decides_is_important_and_what_does_not_is_not() -> None:
    dimensions = (RATE, DROPOUT, OPTIMIZER)
    found = importance(dimensions, trials(dimensions, 300, 1), maximize=False)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["rate"] > 0.8
    assert found.shares["dropout"] < 0.05
    worst = importance(dimensions, [(point, -loss) for point, loss in trials(dimensions, 300, 1)], maximize=True)
    assert worst.shares == pytest.approx(found.shares)


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.inf, 2.0], [1.0] * 20])
def test_too_few_results_or_equal_ones_say_nothing(values: list[float]) -> None:
    found = importance((OPTIMIZER,), [({"optimizer": "adam"}, value) for value in values], maximize=True)
    assert found.shares == {}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seed"), [(6, 1), (40, 2), (300, 3)])
def test_the_shares_are_those_of_optuna(count: int, seed: int) -> None:
    optuna = pytest.importorskip("optuna", reason="the extra `search` is not installed")
    kinds = optuna.distributions
    dimensions = (RATE, DROPOUT, WIDTH, OPTIMIZER, BATCH)
    results = trials(dimensions, count, seed)
    study = optuna.create_study(direction="minimize")
    theirs = {
        "rate": kinds.FloatDistribution(math.exp(-9), math.exp(-1), log=True),
        "dropout": kinds.FloatDistribution(0, 0.5),
        "width": kinds.IntDistribution(0, 3),
        "optimizer": kinds.CategoricalDistribution(("adam", "sgd")),
        "batch": kinds.IntDistribution(0, 19),
    }
    for point, loss in results:
        if math.isfinite(loss):
            params = {**point, "width": WIDTH.values.index(point["width"]), "batch": int(point["batch"])}  # type: ignore[union-attr]
            study.add_trial(optuna.trial.create_trial(value=loss, params=params, distributions=theirs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        expected = optuna.importance.get_param_importances(study, evaluator=evaluator)
    assert importance(dimensions, results, maximize=False).shares == pytest.approx(expected)
