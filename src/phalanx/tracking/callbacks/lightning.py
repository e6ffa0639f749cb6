"""`PhalanxLightning`: `Trainer(logger=PhalanxLightning())`."""

from __future__ import annotations

import os
from typing import Any

from phalanx.tracking.callbacks.base import CallbackRun, existing, safely, set_framework
from phalanx.tracking.callbacks.lazy_classes import ClassPath, find_classes, make_class
from phalanx.tracking.callbacks.ranks import rank_duties


def make() -> type:
    """The class, as a logger of the imported Lightning. Raises ImportError."""
    bases = find_classes(
        ClassPath("lightning.pytorch.loggers", "Logger"),
        ClassPath("pytorch_lightning.loggers", "Logger"),
        ClassPath("pytorch_lightning.loggers", "LightningLoggerBase"),  # before 1.8
    )
    if not bases:
        raise ImportError("PhalanxLightning needs Lightning: `pip install lightning`")
    return make_class("phalanx.tracking.callbacks", "PhalanxLightning", _Logger, bases)


class _Logger(CallbackRun):
    """Logs what a LightningModule logs, from every replica, and its hyperparameters, from the first one.

    `logger.experiment` is the run itself. Checkpoints go to the run's outputs. With `log_model`, the best checkpoint
    becomes a version of the model of that name.
    """

    def __init__(self, run: Any = None, log_model: bool = False, name: str = "model", prefix: str = "") -> None:
        super().__init__(run)
        self._log_model = log_model
        self._model_name = name
        self._prefix = prefix
        self._checkpoint: Any = None
        self._kept: set[str] = set()

    @property
    def name(self) -> str:
        """Empty, as is `version`: checkpoints go to `outputs/checkpoints`, where a resumed run finds them too."""
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str | None:
        """Called on every rank; only ranks that log may start a run."""
        folder = self.run.outputs if rank_duties().speaks else os.environ.get("PHALANX_OUTPUTS")
        return folder or None

    @property
    def root_dir(self) -> str | None:
        return self.save_dir

    @property
    def log_dir(self) -> str | None:
        return self.save_dir

    @property
    def experiment(self) -> Any:
        return self.run if rank_duties().speaks else NullExperiment()

    @safely
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if rank_duties().speaks:
            self.run.log({f"{self._prefix}{name}": value for name, value in metrics.items()}, step=step)

    @safely
    def log_hyperparams(self, params: Any = None, metrics: Any = None, *_: Any, **__: Any) -> None:
        if rank_duties().leads:
            set_framework(self.run, "lightning")
            if params:
                self.run.params(params)
        if metrics:
            self.log_metrics(metrics)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        self._checkpoint = checkpoint_callback

    @safely
    def finalize(self, status: str) -> None:  # noqa: ARG002
        """Called at the end of each fit, test and so on. The run continues: more may follow."""
        if self._log_model and self._checkpoint is not None and rank_duties().leads:
            found = self._checkpoint
            path = existing(getattr(found, "best_model_path", ""), getattr(found, "last_model_path", ""))
            if path is not None and path not in self._kept:
                self._kept.add(path)
                score = getattr(found, "best_model_score", None)
                monitor = getattr(found, "monitor", None)
                self.run.model(path, self._model_name, {monitor: score} if monitor and score is not None else None)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_checkpoint": None}


class NullExperiment:
    """`experiment` on the ranks that do not log: every call does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass
