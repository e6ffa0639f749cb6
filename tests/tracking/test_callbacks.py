"""The callbacks as far as they go without their libraries; `tests/frameworks_tracking` has those."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from phalanx import tracking
from phalanx.tracking import callbacks
from phalanx.tracking.callbacks import keras, lightning, ranks, sklearn, transformers, xgboost
from phalanx.tracking.callbacks.base import CallbackRun, as_written, safely
from phalanx.tracking.callbacks.lazy_classes import ClassPath, find_classes, make_class
from phalanx.tracking.callbacks.lightgbm import phalanx_lightgbm
from tests.frameworks_tracking.kept import Kept, clean_environment

SOURCES = Path(__file__).resolve().parents[2] / "src"
LIBRARIES = ("keras", "lightning", "pytorch_lightning", "lightgbm", "sklearn", "tensorflow", "torch", "transformers")


@pytest.fixture(name="kept")
def kept_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """This process as a replica of a run."""
    kept = Kept(tmp_path / "runs" / "abc")
    for name in ("RANK", "LOCAL_RANK", "PHALANX_OUTSIDE", "PHALANX_TRACKING", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in kept.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tracking, "_active", None)
    yield kept
    tracking.finish()


def fresh(text: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(PYTHONPATH=str(SOURCES), **more)
    command = [sys.executable, "-W", "error", "-c", text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


# the page ------------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_examples_as_they_are() -> None:
    """Those are run with the real libraries in `tests/frameworks_tracking`."""
    page = (SOURCES.parent / "docs" / "track" / "callbacks.md").read_text()
    shown = dict(re.findall(r"\[`(train_\w+\.py)`\].*?```python\n(.*?)```", page, re.DOTALL))
    examples = {file.name: file.read_text() for file in (SOURCES.parent / "examples" / "callbacks").glob("*.py")}
    assert len(examples) == 6
    assert shown == examples


# names and libraries -------------------------------------------------------------------------------------------------


def test_no_library_is_loaded_before_it_is_needed() -> None:
    answer = fresh(f"""
import sys
from phalanx.tracking import callbacks
from phalanx.tracking.callbacks import boosters, keras, lightgbm, lightning, sklearn, transformers, xgboost
from phalanx.tracking.callbacks import log_booster, log_estimator, log_search, phalanx_lightgbm
phalanx_lightgbm()
print(sorted(set(sys.modules) & set({LIBRARIES!r})), len(dir(callbacks)))
""")
    assert (answer.stdout, answer.stderr) == ("[] 8\n", "")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("PhalanxKeras", "pip install keras"),
        ("PhalanxLightning", "pip install lightning"),
        ("PhalanxTransformers", "pip install transformers"),
        ("PhalanxXGBoost", "pip install xgboost"),
    ],
)
def test_a_library_that_is_missing_is_reported_with_what_to_do(name: str, advice: str) -> None:
    hidden = dict.fromkeys((*LIBRARIES, "xgboost", "tf_keras"))
    answer = fresh(f"import sys; sys.modules.update({hidden!r})\nfrom phalanx.tracking.callbacks import {name}")
    assert answer.returncode == 1
    assert f"ImportError: {name} needs" in answer.stderr
    assert advice in answer.stderr


def test_a_name_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"no `PhalanxKera`; it has .*PhalanxKeras"):
        callbacks.PhalanxKera  # noqa: B018


class Base:
    pass


class Other:
    pass


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


def test_the_library_in_use_is_taken_before_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "library_in_use", module("library_in_use", Logger=Other))
    monkeypatch.delitem(sys.modules, "wave", raising=False)  # as if nobody had needed it
    assert find_classes(ClassPath("wave", "Wave_read"), ClassPath("library_in_use", "Logger")) == [Other]
    assert "wave" not in sys.modules
    monkeypatch.delitem(sys.modules, "library_in_use")
    assert [found.__name__ for found in find_classes(ClassPath("wave", "Wave_read"))] == ["Wave_read"]


def test_both_libraries_in_use_are_bases_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "one", module("one", Logger=Base))
    monkeypatch.setitem(sys.modules, "two", module("two", Logger=Other))
    bases = find_classes(ClassPath("one", "Logger"), ClassPath("two", "Logger"), ClassPath("two", "Missing"))
    made = make_class("somewhere", "Made", CallbackRun, bases)
    assert issubclass(made, (Base, Other))
    assert (made.__module__, made.__qualname__) == ("somewhere", "Made")


def test_a_library_without_the_class_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "old", module("old"))
    assert find_classes(ClassPath("old", "Logger"), ClassPath("missing_library", "Logger")) == []


# ranks ---------------------------------------------------------------------------------------------------------------

TWO_REPLICAS = {"PHALANX_TRACK": "x", "PHALANX_WORLD_SIZE": "2"}
OUTSIDE = {"PHALANX_TRACK": "x", "PHALANX_OUTSIDE": "1"}


@pytest.mark.parametrize(
    ("environment", "rank", "size", "expected"),
    [
        ({}, None, None, (True, True)),
        ({"RANK": "0"}, None, None, (True, True)),
        ({"RANK": "1"}, None, None, (False, False)),
        ({"SLURM_PROCID": "3"}, None, None, (False, False)),
        ({"RANK": "what"}, None, None, (True, True)),
        ({}, 1, 2, (False, False)),
        ({**OUTSIDE, "RANK": "1"}, None, None, (False, False)),
        ({**OUTSIDE}, 0, 2, (True, True)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "0"}, None, None, (True, True)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "1", "RANK": "1", "LOCAL_RANK": "0"}, None, None, (True, False)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "0", "LOCAL_RANK": "1"}, None, None, (True, False)),
        # one process in each replica, then two
        ({**TWO_REPLICAS, "PHALANX_RANK": "1"}, 1, 2, (True, False)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "0"}, 0, 4, (True, True)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "0"}, 1, 4, (False, False)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "1"}, 2, 4, (True, False)),
        ({**TWO_REPLICAS, "PHALANX_RANK": "1"}, 3, 4, (False, False)),
        # replicas that do not know of each other
        ({**TWO_REPLICAS, "PHALANX_RANK": "1"}, 0, 1, (True, False)),
    ],
)
def test_who_may_say_what(
    environment: dict[str, str],
    rank: int | None,
    size: int | None,
    expected: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*ranks.GLOBAL_RANKS, "LOCAL_RANK", "PHALANX_TRACK", "PHALANX_OUTSIDE", "PHALANX_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ranks.rank_duties(rank, size) == expected


def test_pytorchs_process_group_is_asked_when_it_is_there(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch", module("torch", distributed=group))
    assert ranks.rank_duties() == (False, False)
    group.is_initialized = lambda: False
    assert ranks.rank_duties() == (True, True)


def test_a_process_that_does_not_speak_makes_no_run(tmp_path: Path) -> None:
    text = """
from types import SimpleNamespace
from phalanx.tracking.callbacks import lightning, phalanx_lightgbm
logger = lightning._Logger()
logger.log_metrics({"loss": 1.0}, step=1)
logger.log_hyperparams({"lr": 0.1})
logger.experiment.image("x", "y.png")
assert logger.save_dir is None
logger.finalize("success")
round = {"iteration": 0, "begin_iteration": 0, "end_iteration": 1, "params": {}, "evaluation_result_list": []}
phalanx_lightgbm()(SimpleNamespace(**round))
"""
    answer = fresh(text, PHALANX_HOME=str(tmp_path / "home"), RANK="1")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert not (tmp_path / "home").exists()


# what is kept --------------------------------------------------------------------------------------------------------


def test_what_goes_wrong_is_said_once_and_stays_there(capfd: pytest.CaptureFixture[str]) -> None:
    @safely
    def fail(text: str) -> None:
        raise ValueError(text)

    fail("first")
    fail("first")
    fail("second")
    said = capfd.readouterr().err.splitlines()
    assert [line.partition("ValueError: ")[2] for line in said] == [
        "first; training continues",
        "second; training continues",
    ]


def test_a_callback_is_copied_to_another_process_without_its_run(kept: Kept) -> None:
    logger = lightning._Logger(tracking.start(), log_model=True)
    logger.after_save_checkpoint(SimpleNamespace(best_model_path="x", open=lambda: None))
    again = pickle.loads(pickle.dumps(logger))
    again.log_metrics({"loss": 1.0}, step=3)
    assert kept.series() == {"loss": [(3, 1.0)]}


def test_lightnings_logger_keeps_metrics_params_and_the_best_checkpoint(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "best.ckpt").write_text("weights")
    logger = lightning._Logger(log_model=True, name="net", prefix="a/")
    logger.log_metrics({"loss": 1.0, "epoch": 0}, 5)
    logger.log_hyperparams(SimpleNamespace(lr=0.1), {"hp_metric": 2.0})
    found = SimpleNamespace(best_model_path=str(tmp_path / "best.ckpt"), monitor="val_loss", best_model_score=0.5)
    logger.after_save_checkpoint(found)
    logger.finalize("success")
    logger.finalize("success")
    assert (logger.name, logger.version, logger.save_dir) == ("", "", str(kept.run / "outputs"))
    assert logger.experiment is tracking.current()
    assert kept.series() == {"a/loss": [(5, 1.0)], "a/epoch": [(5, 0.0)], "a/hp_metric": [(None, 2.0)]}
    assert kept.params() == {"lr": 0.1}
    (model,) = kept.events("model")
    assert (model["name"], model["metrics"]) == ("net", {"val_loss": 0.5})
    assert kept.model_files() == ["best.ckpt"]


class KerasModel:
    built = True
    name = "net"
    optimizer = SimpleNamespace(learning_rate=0.5, get_config=lambda: {"name": "sgd", "learning_rate": 0.10000000149})

    def count_params(self) -> int:
        return 12

    def save(self, path: str) -> None:
        Path(path).write_text("weights")


def test_kerass_callback_keeps_epochs_batches_and_the_model(kept: Kept) -> None:
    callback = keras._Callback(every_batches=2, log_model=True)
    callback.model, callback.params = KerasModel(), {"epochs": 2, "steps": 3, "verbose": 0}
    callback.on_train_begin()
    for epoch in range(2):
        for batch in range(3):
            callback.on_train_batch_end(batch, {"loss": 10.0 * epoch + batch})
        callback.on_test_end({"loss": 9.0})
        callback.on_epoch_end(epoch, {"loss": float(epoch), "val_loss": 9.0})
    callback.on_train_end()
    callback.on_test_end({"loss": 7.0})
    assert kept.series() == {
        "batch/loss": [(2, 1.0), (4, 10.0), (6, 12.0)],
        "learning_rate": [(0, 0.5), (1, 0.5)],
        "loss": [(0, 0.0), (1, 1.0)],
        "val_loss": [(0, 9.0), (1, 9.0)],
        "test_loss": [(None, 7.0)],
    }
    assert kept.params() == {
        "epochs": 2,
        "steps": 3,
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 0.1,
        "model.name": "net",
        "model.parameters": 12,
    }
    assert kept.model_files() == ["model.keras"]
    assert kept.events("progress")[-1]["done"] == 2


def test_a_model_that_cannot_be_saved_does_not_end_the_training(kept: Kept, capfd: pytest.CaptureFixture[str]) -> None:
    callback = keras._Callback(log_model=True)
    callback.model, callback.params = SimpleNamespace(optimizer=None), None
    callback.on_train_begin()
    callback.on_epoch_end(0, None)
    callback.on_train_end()
    assert "no attribute 'save'" in capfd.readouterr().err
    assert kept.events("model") == []


class Arguments:
    metric_for_best_model = "eval_f1"
    process_index = 0
    world_size = 1
    output_dir = "out"

    def to_dict(self) -> dict[str, Any]:
        return {"learning_rate": 0.1, "seed": 0, "hub_token": "<HUB_TOKEN>", "run_name": None, "report_to": []}


class Pretrained:
    config = SimpleNamespace(to_dict=lambda: {"hidden_size": 8, "id2label": {0: "a"}})

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / f"{type(self).__name__}.json").write_text("{}")


class Tokenizer(Pretrained):
    pass


def test_transformers_callback_keeps_logs_arguments_and_the_model(kept: Kept) -> None:
    callback = transformers._Callback(log_model=True)
    state = SimpleNamespace(global_step=4, max_steps=8, best_metric=0.75, best_model_checkpoint=None)
    callback.on_train_begin(Arguments(), state, None, model=Pretrained())
    callback.on_log(Arguments(), state, None, logs={"loss": "0.5", "eval_f1": 1, "note": "text", "evaluation": 2})
    callback.on_predict(Arguments(), state, None, metrics={"test_loss": 3.0})
    callback.on_train_end(Arguments(), state, None, model=Pretrained(), processing_class=Tokenizer(), tokenizer=None)
    assert kept.series() == {
        "train/loss": [(4, 0.5)],
        "eval/f1": [(4, 1.0)],
        "train/evaluation": [(4, 2.0)],
        "test/loss": [(4, 3.0)],
    }
    expected = {"learning_rate": 0.1, "seed": 0, "hub_token": "<HUB_TOKEN>", "model.hidden_size": 8}
    assert kept.params() == expected
    assert kept.model_files() == ["Pretrained.json", "Tokenizer.json"]
    assert kept.events("model")[0]["metrics"] == {"eval_f1": 0.75}


def test_of_a_sharded_model_the_checkpoint_is_kept(kept: Kept, tmp_path: Path) -> None:
    best = tmp_path / "checkpoint-4"
    best.mkdir()
    (best / "shard-0").touch()
    arguments = Arguments()
    arguments.fsdp = "full_shard"  # type: ignore[attr-defined]
    state = SimpleNamespace(global_step=8, best_metric=None, best_model_checkpoint=str(best))
    transformers._Callback(log_model=True).on_train_end(arguments, state, None, model=None)
    assert kept.model_files() == ["shard-0"]


class Booster:
    """As XGBoost's says of itself, in some version."""

    def save_config(self) -> str:
        tree = {"max_depth": "6", "eta": "0.300000012", "monotone_constraints": "()"}
        booster = {"name": "gbtree", "updater": {"grow_histmaker": {"train_param": tree}}}
        return json.dumps({"learner": {"gradient_booster": booster, "objective": {"name": "reg:squarederror"}}})

    def attributes(self) -> dict[str, str]:
        return {"best_iteration": "3", "best_score": "0.5"}


def test_xgboosts_callback_keeps_evaluations_and_params(kept: Kept) -> None:
    callback, booster = xgboost._Callback(), Booster()
    assert callback.before_training(booster) is booster
    assert (
        callback.after_iteration(booster, 2, {"train": {"rmse": [3.0, 2.0]}, "valid": {"auc": [(0.5, 0.1)]}}) is False
    )
    assert callback.after_iteration(booster, 3, {"train": "nonsense"}) is False
    assert callback.after_training(booster) is booster
    assert kept.series() == {
        "train/rmse": [(2, 2.0)],
        "valid/auc": [(2, 0.5)],
        "valid/auc_std": [(2, 0.1)],
        "best_iteration": [(None, 3.0)],
        "best_score": [(None, 0.5)],
    }
    assert kept.params() == {
        "max_depth": 6,
        "eta": 0.3,
        "monotone_constraints": "()",
        "objective": "reg:squarederror",
        "booster": "gbtree",
    }


def test_lightgbms_callback_keeps_evaluations_of_every_version(kept: Kept) -> None:
    callback = phalanx_lightgbm()
    assert (callback.order, callback.before_iteration) == (25, False)
    fields = {"begin_iteration": 0, "end_iteration": 2, "params": {"num_leaves": 4, "objective": max}}
    results = [
        ("valid_0", "auc", 0.5, True),
        ("cv_agg", "valid l2", 1.0, False, 0.25),
        ("cv_agg", "l1", 2.0, False, 0.5),
    ]
    callback(SimpleNamespace(**fields, iteration=0, evaluation_result_list=results))
    callback(SimpleNamespace(**fields, iteration=1, evaluation_result_list=[("valid_0", "auc", 0.75, True, None)]))
    callback(SimpleNamespace(**fields, iteration=2, evaluation_result_list=None))
    assert kept.series() == {
        "valid_0/auc": [(0, 0.5), (1, 0.75)],
        "valid/l2": [(0, 1.0)],
        "valid/l2_std": [(0, 0.25)],
        "l1": [(0, 2.0)],
        "l1_std": [(0, 0.5)],
    }
    assert kept.params() == {"num_leaves": 4}


def test_a_search_of_candidates_is_a_table_and_points(kept: Kept) -> None:
    search = SimpleNamespace(
        cv_results_={
            "params": [{"C": 1}, {"C": 2}],
            "param_C": [1, 2],
            "mean_test_score": [0.5, 0.75],
            "split0_test_score": [0.5, 0.75],
        },
        best_params_={"C": 2},
        best_score_=0.75,
    )
    sklearn.log_search(search)
    (table,) = kept.events("table")
    assert (table["columns"], table["rows"]) == (["param_C", "mean_test_score"], [[1, 0.5], [2, 0.75]])
    assert kept.series() == {"search/mean_test_score": [(0, 0.5), (1, 0.75)], "best_score": [(None, 0.75)]}
    assert kept.params() == {"best.C": 2}


@pytest.mark.parametrize(("held", "written"), [(0.10000000149, 0.1), (1, 1), ("0.1", "0.1"), (2.5, 2.5)])
def test_single_precision_is_reported_as_it_was_written(held: Any, written: Any) -> None:
    assert as_written(held) == written
