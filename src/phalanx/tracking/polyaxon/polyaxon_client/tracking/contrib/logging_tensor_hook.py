"""`PolyaxonLoggingTensorHook`: the hook for TensorFlow's sessions and estimators."""

from __future__ import annotations

from typing import Any

from phalanx.tracking.callbacks.lazy_classes import ClassPath

from ..guards import check_no_op
from .lazy_classes import PolyaxonClass, experiment_or_own, lazily


class _Metrics:
    """Logs the tensors that TensorFlow's own hook prints."""

    _tensors: dict[str, Any]

    def __init__(
        self, tensors: Any, experiment: Any = None, every_n_iter: int | None = None, every_n_secs: float | None = None
    ) -> None:
        super().__init__(tensors=tensors, every_n_iter=every_n_iter, every_n_secs=every_n_secs)  # type: ignore[call-arg]
        self.experiment = experiment_or_own(experiment)

    def _log_tensors(self, tensor_values: Any) -> None:
        super()._log_tensors(tensor_values)  # type: ignore[misc]
        self._keep(tensor_values)

    @check_no_op
    def _keep(self, values: Any) -> None:
        if self.experiment is not None:
            self.experiment.log_metrics(**{name: values[name] for name in self._tensors})


_PLACES = (
    ClassPath("tensorflow.train", "LoggingTensorHook"),
    ClassPath("tensorflow", "compat.v1.train.LoggingTensorHook"),
)
__getattr__ = lazily(globals(), {"PolyaxonLoggingTensorHook": PolyaxonClass(_Metrics, "tensorflow", _PLACES)})
