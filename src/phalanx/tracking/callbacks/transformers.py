"""`PhalanxTransformers`: `Trainer(…, callbacks=[PhalanxTransformers()])`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from phalanx.tracking.callbacks.base import CallbackRun, draft_folder, existing, safely, set_framework
from phalanx.tracking.callbacks.lazy_classes import ClassPath, find_classes, make_class
from phalanx.tracking.callbacks.ranks import RankDuties, rank_duties

TOO_LONG = ("id2label", "label2id")  # a name for each class, of which there may be thousands


def make() -> type:
    """The class. Raises ImportError."""
    bases = find_classes(
        ClassPath("transformers", "TrainerCallback"), ClassPath("transformers.trainer_callback", "TrainerCallback")
    )
    if not bases:
        raise ImportError("PhalanxTransformers needs transformers: `pip install transformers`")
    return make_class("phalanx.tracking.callbacks", "PhalanxTransformers", _Callback, bases[:1])


class _Callback(CallbackRun):
    """Logs what the Trainer logs, as `train/loss` and `eval/loss`, and its arguments and the model's configuration.

    With `log_model` the trained model becomes a version of the model of that name.
    """

    def __init__(self, run: Any = None, log_model: bool = False, name: str = "model") -> None:
        super().__init__(run)
        self._log_model = log_model
        self._model_name = name

    @safely
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:  # noqa: ARG002
        if self._duties(args).leads:
            set_framework(self.run, "transformers")
            self.run.params({**_config_of(args), "model": _config_of(getattr(model, "config", None))})

    @safely
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        if logs and self._duties(args).speaks:
            self.run.log(dict(_renamed(logs)), step=state.global_step)
            if state.max_steps:
                self.run.progress(state.global_step, state.max_steps, "steps")

    @safely
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:  # noqa: ARG002
        if metrics and self._duties(args).speaks:
            self.run.log(dict(_renamed(metrics)), step=state.global_step)

    @safely
    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:  # noqa: ARG002
        if not self._log_model or not self._duties(args).leads:
            return
        known_as = getattr(args, "metric_for_best_model", None)
        metrics = {known_as: state.best_metric} if known_as and state.best_metric is not None else None
        if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):  # no process has the whole model
            last = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            path = existing(state.best_model_checkpoint, last)
            if path is not None:
                self.run.model(path, self._model_name, metrics)
            return
        with draft_folder() as folder:
            model.save_pretrained(folder)
            for name in ("processing_class", "tokenizer", "image_processor"):
                if others.get(name) is not None:
                    others[name].save_pretrained(folder)
            self.run.model(folder, self._model_name, metrics)

    @staticmethod
    def _duties(args: Any) -> RankDuties:
        return rank_duties(getattr(args, "process_index", None), getattr(args, "world_size", None))


def _config_of(source: Any) -> dict[str, Any]:
    """The values of arguments or a configuration; `to_dict` masks secrets."""
    values = source.to_dict() if hasattr(source, "to_dict") else {}
    return {name: value for name, value in values.items() if value not in (None, "", [], {}) and name not in TOO_LONG}


def _renamed(logs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Metrics under the names that the Trainer's other trackers use; some versions log numbers as strings."""
    for name, value in logs.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        part, _, rest = name.partition("_")
        yield (f"{part}/{rest}" if rest and part in ("eval", "test") else f"train/{name}"), number
