"""`log_estimator` and `log_search`: record what scikit-learn trained."""

# ruff: noqa: N803 - X is how that library calls it

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from phalanx import tracking
from phalanx.tracking.callbacks.base import draft_folder, safely, set_framework
from phalanx.tracking.callbacks.ranks import rank_duties

MOST_CLASSES = 100  # of which a confusion matrix is drawn
SCORES = {
    "classifier": ("accuracy", "balanced_accuracy", "f1_macro", "precision_macro", "recall_macro"),
    "regressor": ("r2", "neg_mean_absolute_error", "neg_root_mean_squared_error"),
}


@safely
def log_estimator(  # noqa: PLR0913 - an estimator, its test, and what to call it
    estimator: Any,
    X: Any = None,
    y: Any = None,
    *,
    prefix: str = "test",
    log_model: bool = False,
    name: str = "model",
    run: Any = None,
) -> dict[str, float]:
    """Record an estimator's params and, with X and y, its scores as `test/accuracy` and so on, which are also returned.
    For a classifier, also the confusion matrix. With `log_model` it becomes a version of the model of that name."""
    if not rank_duties().leads:
        return {}
    run = tracking.start() if run is None else run
    set_framework(run, "scikit-learn")
    run.params({**_params(estimator), "estimator": type(estimator).__name__})
    scores = {} if X is None else dict(_scores(estimator, X, y))
    run.log({f"{prefix}/{score}": value for score, value in scores.items()})
    if y is not None and _kind(estimator) == "classifier":
        _log_confusion(run, estimator, X, y, prefix)
    if log_model:
        _log_model(run, estimator, name, scores)
    return scores


@safely
def log_search(search: Any, *, log_model: bool = False, name: str = "model", run: Any = None) -> None:
    """Record what a fitted GridSearchCV, RandomizedSearchCV or similar tried, as the table `search` and as points, one
    step for each candidate; and the best params and scores."""
    if not rank_duties().leads:
        return
    run = tracking.start() if run is None else run
    set_framework(run, "scikit-learn")
    results = search.cv_results_
    figures = [key for key in results if key.startswith(("mean_", "std_", "rank_"))]
    columns = [key for key in results if key.startswith("param_")] + figures
    candidates = range(len(results["params"]))
    run.table("search", columns, [[_plain(results[key][row]) for key in columns] for row in candidates])
    for row in candidates:
        run.log({f"search/{key}": results[key][row] for key in figures}, step=row)
    if hasattr(search, "best_params_"):  # not with several scores and no refit
        run.params({"best": {key: _plain(value) for key, value in search.best_params_.items()}})
    best = {"best_score": search.best_score_} if hasattr(search, "best_score_") else {}
    run.log(best)
    if hasattr(search, "best_estimator_"):
        run.params({"estimator": type(search.best_estimator_).__name__})
        if log_model:
            _log_model(run, search.best_estimator_, name, best)


def _params(estimator: Any) -> dict[str, Any]:
    """The params without the lists of a pipeline's steps, whose params are listed by name."""
    params = estimator.get_params(deep=True)
    return {key: _plain(value) for key, value in params.items() if value is not None and not _is_composition(value)}


def _is_composition(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(part, tuple) for part in value)


def _plain(value: Any) -> Any:
    """Estimators, functions and random number generators by name."""
    if hasattr(value, "get_params"):
        return type(value).__name__
    return getattr(value, "__name__", value) if callable(value) else value


def _kind(estimator: Any) -> str:
    base = import_module("sklearn.base")
    if base.is_classifier(estimator):
        return "classifier"
    return "regressor" if base.is_regressor(estimator) else ""


def _scores(estimator: Any, X: Any, y: Any) -> Iterator[tuple[str, float]]:
    """The suitable scorers of scikit-learn; for other kinds of estimators their `score`."""
    metrics = import_module("sklearn.metrics")
    for name in SCORES.get(_kind(estimator), ()):
        value = float(metrics.get_scorer(name)(estimator, X, y))
        yield name.replace("neg_", ""), -value if name.startswith("neg_") else value
    if _kind(estimator) == "classifier" and hasattr(estimator, "predict_proba"):
        for name in ("neg_log_loss", "roc_auc_ovr"):
            try:
                value = float(metrics.get_scorer(name)(estimator, X, y))
            except ValueError:  # classes missing in the test data
                continue
            yield name.replace("neg_", "").replace("_ovr", ""), -value if name.startswith("neg_") else value
    if not _kind(estimator) and hasattr(estimator, "score"):
        yield "score", float(estimator.score(X, y) if y is not None else estimator.score(X))


def _log_confusion(run: Any, estimator: Any, X: Any, y: Any, prefix: str) -> None:
    classes = list(getattr(estimator, "classes_", ()))
    if not 0 < len(classes) <= MOST_CLASSES:
        return
    metrics = import_module("sklearn.metrics")
    matrix = metrics.confusion_matrix(y, estimator.predict(X), labels=classes).tolist()
    rows = [[str(name), *counts] for name, counts in zip(classes, matrix)]  # noqa: B905 - Python 3.8
    run.table(f"{prefix}/confusion", ["true", *map(str, classes)], rows)


def _log_model(run: Any, estimator: Any, name: str, scores: Mapping[str, Any]) -> None:
    """With skops, whose files can be read without trusting them, where it is installed; else with joblib, as
    scikit-learn's documentation does."""
    with draft_folder() as folder:
        try:
            path = os.path.join(folder, "model.skops")
            import_module("skops.io").dump(estimator, path)
        except ImportError:
            path = os.path.join(folder, "model.joblib")
            import_module("joblib").dump(estimator, path)
        run.model(path, name, scores)
