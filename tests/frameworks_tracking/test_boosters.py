from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.tracking import callbacks
from tests.frameworks_tracking.kept import Kept

base: Any = pytest.importorskip("sklearn.base")
datasets: Any = pytest.importorskip("sklearn.datasets")


def points() -> Any:
    return datasets.make_classification(120, 4, random_state=0)


def test_xgboosts_example_keeps_evaluations_params_and_the_booster(example: Callable[[str], Kept]) -> None:
    xgboost = pytest.importorskip("xgboost")
    kept = example("train_xgboost.py")
    found = kept.series()
    assert set(found) == {
        *("train/logloss", "train/auc", "valid/logloss", "valid/auc", "best_iteration", "best_score"),
    }
    steps = [step for step, _ in found["valid/auc"]]
    assert steps == list(range(len(steps)))
    params = kept.params()
    assert (params["max_depth"], params["eta"], params["objective"]) == (3, 0.3, "binary:logistic")
    again = xgboost.Booster(model_file=str(kept.run / kept.events("model")[0]["path"]))
    assert again.num_boosted_rounds() == len(steps)
    (table,) = kept.events("table")
    gains = [row[1] for row in table["rows"]]
    assert gains == sorted(gains, reverse=True)


def test_xgboosts_cross_validation_and_estimators_are_kept(kept: Kept) -> None:
    xgboost = pytest.importorskip("xgboost")
    X, y = points()  # noqa: N806
    xgboost.cv({"max_depth": 2}, xgboost.DMatrix(X, y), 3, nfold=2, callbacks=[callbacks.PhalanxXGBoost()])
    assert len(kept.series()["test/rmse"]) == len(kept.series()["test/rmse_std"]) == 3
    estimator = base.clone(xgboost.XGBClassifier(n_estimators=2, callbacks=[callbacks.PhalanxXGBoost()]))
    estimator.fit(X, y, eval_set=[(X, y)], verbose=False)
    assert len(kept.series()["validation_0/logloss"]) == 2
    callbacks.log_booster(estimator, name="trees")
    assert kept.events("model")[0]["name"] == "trees"


def test_lightgbms_example_keeps_evaluations_params_and_the_booster(example: Callable[[str], Kept]) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    kept = example("train_lightgbm.py")
    assert set(kept.series()) == {"train/auc", "train/binary_logloss", "valid/auc", "valid/binary_logloss"}
    assert kept.params()["num_leaves"] == 8
    (model,) = kept.events("model")
    assert lightgbm.Booster(model_file=str(kept.run / model["path"])).num_trees() > 0
    assert model["metrics"]["auc"] > 0.9
    assert len(kept.events("table")[0]["rows"]) == 30


def test_lightgbms_cross_validation_and_estimators_are_kept(kept: Kept) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = points()  # noqa: N806
    quiet = {"objective": "binary", "verbose": -1}
    lightgbm.cv(quiet, lightgbm.Dataset(X, y), 3, nfold=2, callbacks=[callbacks.phalanx_lightgbm()])
    (deviation,) = (name for name in kept.series() if name.endswith("_std"))
    assert len(kept.series()[deviation]) == len(kept.series()[deviation.removesuffix("_std")]) == 3
    estimator = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1)
    estimator.fit(X, y, eval_set=[(X, y)], callbacks=[callbacks.phalanx_lightgbm()])
    callbacks.log_booster(estimator)
    assert kept.model_files() == ["model.txt"]
