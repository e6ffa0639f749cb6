"""`log_booster`: records what XGBoost and LightGBM trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from phalanx import tracking
from phalanx.tracking.callbacks.base import draft_folder, safely
from phalanx.tracking.callbacks.ranks import rank_duties


@safely
def log_booster(model: Any, run: Any = None, name: str = "model", metrics: Mapping[str, Any] | None = None) -> None:
    """Keep a booster, or an estimator that has one, as a version of the model of that name, and its feature importance
    by gain, as the table `feature_importance`."""
    if not rank_duties().leads:
        return
    run = tracking.start() if run is None else run
    booster = _booster(model)
    with draft_folder() as folder:
        path = os.path.join(folder, "model.ubj" if hasattr(booster, "get_score") else "model.txt")
        booster.save_model(path)
        run.model(path, name, metrics)
    gains = _gains(booster)
    run.table("feature_importance", ["feature", "gain"], sorted(gains.items(), key=lambda row: -row[1]))


def _booster(model: Any) -> Any:
    if hasattr(model, "get_booster"):  # XGBoost's estimators
        return model.get_booster()
    return getattr(model, "booster_", model)  # LightGBM's


def _gains(booster: Any) -> dict[str, float]:
    if hasattr(booster, "get_score"):  # XGBoost; a linear one has weights only, one for each class
        try:
            found = booster.get_score(importance_type="gain")
        except ValueError:
            found = booster.get_score(importance_type="weight")
        return {name: float(value) for name, value in found.items() if not isinstance(value, list)}
    counted = booster.feature_importance(importance_type="gain")
    return {name: float(value) for name, value in zip(booster.feature_name(), counted)}  # noqa: B905 - Python 3.8
