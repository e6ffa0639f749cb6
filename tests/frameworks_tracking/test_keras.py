from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from phalanx.tracking import callbacks
from tests.frameworks_tracking.kept import Kept

os.environ.setdefault("KERAS_BACKEND", "torch")
keras: Any = pytest.importorskip("keras")
numpy: Any = pytest.importorskip("numpy")


def test_the_example_keeps_epochs_batches_and_the_model(example: Callable[[str], Kept]) -> None:
    kept = example("train_keras.py")
    found = kept.series()
    assert [step for step, _ in found["loss"]] == [0, 1, 2]
    assert found["loss"][2][1] < found["loss"][0][1]
    assert found.keys() >= {"mae", "val_loss", "val_mae", "batch/loss", "test_loss"}
    assert [value for _, value in found["learning_rate"]] == pytest.approx([0.01] * 3)
    params = kept.params()
    assert (params["optimizer.name"], params["optimizer.learning_rate"], params["model.parameters"]) == ("sgd", 0.01, 3)
    assert kept.model_files() == ["model.keras"]
    again = keras.models.load_model(kept.run / kept.events("model")[0]["path"])
    assert again.predict(numpy.zeros((1, 2)), verbose=0).shape == (1, 1)


def line() -> Any:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


POINTS = numpy.ones((8, 2)), numpy.ones((8, 1))


def test_it_is_a_callback_of_keras_and_can_be_used_again(kept: Kept) -> None:
    callback = callbacks.PhalanxKeras()
    assert isinstance(callback, keras.callbacks.Callback)
    model = line()
    model.fit(*POINTS, epochs=2, callbacks=[callback], verbose=0)
    model.fit(*POINTS, epochs=4, initial_epoch=2, callbacks=[callback], verbose=0)
    assert [step for step, _ in kept.series()["loss"]] == [0, 1, 2, 3]


def test_a_rate_that_changes_is_kept_as_it_is_used(kept: Kept) -> None:
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])
    model = line()
    model.compile(keras.optimizers.SGD(schedule), "mse")
    model.fit(*POINTS, epochs=3, batch_size=8, callbacks=[callbacks.PhalanxKeras()], verbose=0)
    assert [value for _, value in kept.series()["learning_rate"]] == [0.5, 0.25, 0.25]


def test_polyaxons_callbacks_keep_metrics_and_checkpoints(polyaxon: Kept) -> None:
    contrib = import_module("polyaxon_client.tracking.contrib.keras")
    experiment = import_module("polyaxon_client.tracking").Experiment()
    metrics = contrib.PolyaxonKeras(metrics=["loss", "missing"])
    weights = contrib.PolyaxonModelCheckpoint(experiment, "{epoch:02d}.weights.h5", save_weights_only=True)
    assert isinstance(metrics, keras.callbacks.Callback)
    assert isinstance(weights, keras.callbacks.ModelCheckpoint)
    line().fit(*POINTS, epochs=2, callbacks=[metrics, weights], verbose=0)
    assert {name: len(points) for name, points in polyaxon.series().items()} == {"loss": 2}
    assert [event["name"] for event in polyaxon.events("artifact")] == ["01.weights.h5", "02.weights.h5"]
