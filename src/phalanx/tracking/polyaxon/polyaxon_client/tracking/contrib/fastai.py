"""`PolyaxonFastai`: the callback for fastai 1."""

from __future__ import annotations

from typing import Any

from phalanx.tracking.callbacks.lazy_classes import ClassPath

from ..guards import check_no_op
from .lazy_classes import PolyaxonClass, experiment_or_own, lazily


class _Metrics:
    """Logs the recorder's figures at the end of every epoch."""

    learn: Any

    def __init__(self, learn: Any, experiment: Any = None, monitor: str = "val_loss", mode: str = "auto") -> None:
        super().__init__(learn, monitor=monitor, mode=mode)  # type: ignore[call-arg]
        self.experiment = experiment_or_own(experiment)

    @check_no_op
    def on_epoch_end(self, epoch: int, smooth_loss: Any, last_metrics: Any, **_: Any) -> None:
        if self.experiment is not None:
            figures = [epoch, smooth_loss, *(last_metrics or ())]
            named = dict(zip(self.learn.recorder.names, figures))  # noqa: B905 - Python 3.8
            self.experiment.log_metrics(**{name: value for name, value in named.items() if name != "epoch"})


_PLACES = (ClassPath("fastai.callbacks", "TrackerCallback"),)
__getattr__ = lazily(globals(), {"PolyaxonFastai": PolyaxonClass(_Metrics, "Fastai", _PLACES)})
