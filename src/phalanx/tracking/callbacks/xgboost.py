"""`PhalanxXGBoost`: `xgboost.train(…, callbacks=[PhalanxXGBoost()])`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from phalanx.tracking.callbacks.base import CallbackRun, as_written, safely, set_framework
from phalanx.tracking.callbacks.boosters import log_booster
from phalanx.tracking.callbacks.lazy_classes import ClassPath, find_classes, make_class
from phalanx.tracking.callbacks.ranks import RankDuties, rank_duties


def make() -> type:
    """The class. Raises ImportError."""
    bases = find_classes(ClassPath("xgboost.callback", "TrainingCallback"))
    if not bases:
        raise ImportError("PhalanxXGBoost needs XGBoost 1.3 or newer: `pip install xgboost`")
    return make_class("phalanx.tracking.callbacks", "PhalanxXGBoost", _Callback, bases)


class _Callback(CallbackRun):
    """Logs every evaluation as `train/rmse` and so on, and the params of the booster.

    With `log_model` the booster becomes a version of the model of that name, with its feature importance.
    """

    def __init__(self, run: Any = None, log_model: bool = False, name: str = "model") -> None:
        super().__init__(run)
        self._log_model = log_model
        self._model_name = name

    def before_training(self, model: Any) -> Any:
        self._record_params(model)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._log(model, epoch, evals_log)
        return False

    def after_training(self, model: Any) -> Any:
        self._end(model)
        return model

    @safely
    def _record_params(self, model: Any) -> None:
        if _duties().leads:
            set_framework(self.run, "xgboost")
            if hasattr(model, "save_config"):  # a cross-validation has many boosters
                self.run.params(dict(_config_params(json.loads(model.save_config())["learner"])))

    @safely
    def _log(self, model: Any, epoch: int, evals_log: Any) -> None:
        if _duties().speaks:
            # Rounds that a model already has are not counted. A cross-validation has many models.
            rounds = getattr(model, "num_boosted_rounds", None)
            self.run.log(dict(_latest(evals_log)), step=epoch if rounds is None else rounds() - 1)

    @safely
    def _end(self, model: Any) -> None:
        if not _duties().leads or not hasattr(model, "attributes"):
            return
        best = {name: model.attributes().get(name) for name in ("best_iteration", "best_score")}
        self.run.log({name: float(value) for name, value in best.items() if value is not None})
        if self._log_model:
            log_booster(model, self.run, self._model_name)


def _duties() -> RankDuties:
    """The duties by XGBoost's own ranks, whose module had another name before 1.7."""
    for name in ("xgboost.collective", "xgboost.rabit"):
        try:
            ranks = import_module(name)
            size = ranks.get_world_size()
            return rank_duties(ranks.get_rank(), size) if size > 1 else rank_duties()
        except (ImportError, AttributeError, OSError, ValueError):  # XGBoost's own error is a ValueError
            continue
    return rank_duties()


def _latest(evals_log: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            last = values[-1]
            if isinstance(last, tuple):  # of a cross-validation: mean and deviation
                yield f"{data}/{metric}", last[0]
                yield f"{data}/{metric}_std", last[1]
            else:
                yield f"{data}/{metric}", last


def _config_params(learner: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The params that users set, from the booster's configuration."""
    yield from _train_params(learner)
    yield "objective", learner.get("objective", {}).get("name")
    yield "booster", learner.get("gradient_booster", {}).get("name")


def _train_params(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The training params, at a different depth in every version. Their numbers are strings."""
    for name, value in part.items():
        if isinstance(value, dict) and name.endswith("train_param"):
            yield from ((key, _number(text)) for key, text in value.items())
        elif isinstance(value, dict):
            yield from _train_params(value)


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            return as_written(kind(text))
        except (TypeError, ValueError):
            continue
    return text
