"""`PhalanxKeras`: `model.fit(…, callbacks=[PhalanxKeras()])`."""

from __future__ import annotations

import os
from typing import Any

from phalanx.tracking.callbacks.base import CallbackRun, as_written, draft_folder, safely, set_framework
from phalanx.tracking.callbacks.lazy_classes import ClassPath, find_classes, make_class
from phalanx.tracking.callbacks.ranks import rank_duties


def make() -> type:
    """The class, as a callback of the imported Keras. Raises ImportError."""
    bases = find_classes(
        ClassPath("keras.callbacks", "Callback"),
        ClassPath("tf_keras.callbacks", "Callback"),
        ClassPath("tensorflow.keras.callbacks", "Callback"),
    )
    if not bases:
        raise ImportError("PhalanxKeras needs Keras: `pip install keras`")
    return make_class("phalanx.tracking.callbacks", "PhalanxKeras", _Callback, bases[:1])


class _Callback(CallbackRun):
    """Logs every epoch's metrics, the learning rate, and the settings of the optimizer.

    With `every_batches=100` the metrics of each hundredth batch too, as `batch/loss`. With `log_model` the trained
    model becomes a version of the model of that name. `model.evaluate(…, callbacks=[…])` logs `test_loss` and so on.
    """

    model: Any
    params: Any

    def __init__(self, run: Any = None, every_batches: int = 0, log_model: bool = False, name: str = "model") -> None:
        super().__init__(run)
        self._every_batches = every_batches
        self._log_model = log_model
        self._model_name = name
        self._batches = 0
        self._is_fitting = False
        self._last: dict[str, Any] = {}

    @safely
    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._is_fitting = True
        if rank_duties().leads:
            set_framework(self.run, "keras")
            self.run.params(self._params())

    def _params(self) -> dict[str, Any]:
        asked = self.params or {}
        values = {name: asked[name] for name in ("epochs", "steps", "batch_size") if asked.get(name) is not None}
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            config = optimizer.get_config()
            values["optimizer"] = {key: as_written(value) for key, value in config.items() if value is not None}
        if getattr(self.model, "built", False):
            values["model"] = {"name": self.model.name, "parameters": self.model.count_params()}
        return values

    @safely
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - it begins anew in each epoch
        self._batches += 1
        if self._every_batches and logs and self._batches % self._every_batches == 0 and rank_duties().speaks:
            self.run.log({f"batch/{name}": value for name, value in logs.items()}, step=self._batches)

    @safely
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not rank_duties().speaks:
            return
        self._last = dict(logs or {})
        rate = getattr(getattr(self.model, "optimizer", None), "learning_rate", None)
        known = {} if rate is None or callable(rate) else {"learning_rate": rate}
        self.run.log({**known, **self._last}, step=epoch)
        total = (self.params or {}).get("epochs")
        if total:
            self.run.progress(epoch + 1, total, "epochs")

    @safely
    def on_test_end(self, logs: Any = None) -> None:
        if logs and not self._is_fitting and rank_duties().speaks:
            self.run.log({f"test_{name}": value for name, value in logs.items()})

    @safely
    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        self._is_fitting = False
        if self._log_model and rank_duties().leads:
            with draft_folder() as folder:
                path = os.path.join(folder, "model.keras")
                self.model.save(path)
                self.run.model(path, self._model_name, self._last)
