from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.tracking import callbacks
from tests.frameworks_tracking.kept import Kept

transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def test_the_example_keeps_logs_arguments_and_the_model(example: Callable[[str], Kept]) -> None:
    kept = example("train_transformers.py")
    found = kept.series()
    assert [step for step, _ in found["train/loss"]] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [step for step, _ in found["eval/loss"]] == [8, 16]
    params = kept.params()
    assert (params["num_train_epochs"], params["model.hidden_size"], params["learning_rate"]) == (2, 16, 5e-5)
    assert {"config.json", "model.safetensors"} <= set(kept.model_files())
    assert kept.events("progress")[-1]["done"] == kept.events("progress")[-1]["total"] == 16


def test_it_is_a_callback_of_the_trainer(kept: Kept) -> None:
    assert issubclass(callbacks.PhalanxTransformers, transformers.TrainerCallback)
