from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from phalanx.tracking.callbacks import log_estimator, log_search
from tests.frameworks_tracking.kept import Kept

datasets: Any = pytest.importorskip("sklearn.datasets")


def test_the_example_keeps_the_search_the_scores_and_the_model(example: Callable[[str], Kept]) -> None:
    kept = example("train_sklearn.py")
    found = kept.series()
    assert found.keys() >= {"test/accuracy", "test/roc_auc", "test/log_loss", "best_score"}
    assert found["test/accuracy"][0][1] > 0.9
    assert [step for step, _ in found["search/mean_test_score"]] == [0, 1, 2]
    params = kept.params()
    assert params["estimator"] == "Pipeline"
    assert params["logisticregression__C"] == params["best.logisticregression__C"]
    assert "steps" not in params
    search, confusion = kept.events("table")
    assert search["columns"][0] == "param_logisticregression__C"
    assert sum(count for row in confusion["rows"] for count in row[1:]) == 143
    model = kept.run / kept.events("model")[0]["path"]
    assert import_module("joblib").load(model).predict([[0.0] * 30]).shape == (1,)


def test_regressors_and_others_have_the_scores_of_their_kind(kept: Kept) -> None:
    X, y = datasets.make_regression(60, 3, random_state=0)  # noqa: N806
    linear, cluster = import_module("sklearn.linear_model"), import_module("sklearn.cluster")
    scores = log_estimator(linear.LinearRegression().fit(X, y), X, y)
    assert scores == {
        "r2": pytest.approx(1.0),
        "mean_absolute_error": pytest.approx(0.0, abs=1e-9),
        "root_mean_squared_error": pytest.approx(0.0, abs=1e-9),
    }
    assert log_estimator(cluster.KMeans(2, n_init=1).fit(X), X, prefix="groups").keys() == {"score"}
    assert kept.series().keys() >= {"test/r2", "groups/score"}
    assert kept.events("table") == []


def test_params_that_are_things_are_reported_by_their_names(kept: Kept) -> None:
    ensemble, tree = import_module("sklearn.ensemble"), import_module("sklearn.tree")
    log_estimator(ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=2), n_estimators=3))
    params = kept.params()
    assert (params["estimator"], params["estimator__max_depth"], params["n_estimators"]) == ("BaggingClassifier", 2, 3)
    assert kept.series() == {}


def test_an_estimator_that_is_not_trained_hurts_no_one(kept: Kept, capfd: pytest.CaptureFixture[str]) -> None:
    linear = import_module("sklearn.linear_model")
    log_estimator(linear.Ridge(), [[1.0]], [1.0])
    log_search(linear.Ridge())
    assert capfd.readouterr().err.count("training continues") == 2
    assert kept.series() == {}


def test_a_test_without_some_classes_has_the_scores_that_are_left(kept: Kept) -> None:
    X, y = datasets.make_classification(90, 6, n_informative=4, n_classes=3, random_state=0)  # noqa: N806
    classifier = import_module("sklearn.linear_model").LogisticRegression(max_iter=500).fit(X, y)
    scores = log_estimator(classifier, X[y < 2], y[y < 2])
    assert "accuracy" in scores
    assert "roc_auc" not in scores
