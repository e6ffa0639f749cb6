"""`PolyaxonKeras` and `PolyaxonModelCheckpoint`: Keras's callbacks of Polyaxon."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from phalanx.tracking.callbacks.lazy_classes import ClassPath

from ..guards import check_no_op
from .lazy_classes import PolyaxonClass, experiment_or_own, lazily

_MODULES = ("keras.callbacks", "tensorflow.keras.callbacks", "tensorflow.python.keras.callbacks")


class _Metrics:
    """Logs Keras's metrics, or some of them, at the end of every epoch."""

    def __init__(self, experiment: Any = None, metrics: Iterable[str] | None = None) -> None:
        super().__init__()
        self.experiment = experiment_or_own(experiment)
        self.metrics = None if metrics is None else list(metrics)

    @check_no_op
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - the epochs of several fits count on
        if not logs or self.experiment is None:
            return
        self.experiment.log_metrics(**{name: logs[name] for name in self.metrics or logs if name in logs})


class _Checkpoint:
    """Keras's own checkpoint, of which the run keeps a copy."""

    filepath: str

    def __init__(self, experiment: Any, filepath: str, **options: Any) -> None:
        super().__init__(filepath, **options)  # type: ignore[call-arg]
        self.experiment = experiment

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs=logs)  # type: ignore[misc]
        self._keep(epoch, dict(logs or {}))

    @check_no_op
    def _keep(self, epoch: int, logs: dict[str, Any]) -> None:
        path = str(self.filepath).format(epoch=epoch + 1, **logs)
        if self.experiment is None:
            return
        if os.path.isdir(path):
            self.experiment.log_artifacts(path)
        elif os.path.isfile(path):
            self.experiment.log_artifact(path)


def _places(name: str) -> tuple[ClassPath, ...]:
    return tuple(ClassPath(module, name) for module in _MODULES)


__getattr__ = lazily(
    globals(),
    {
        "PolyaxonKeras": PolyaxonClass(_Metrics, "Keras", _places("Callback")),
        "PolyaxonModelCheckpoint": PolyaxonClass(_Checkpoint, "Keras", _places("ModelCheckpoint")),
    },
)
