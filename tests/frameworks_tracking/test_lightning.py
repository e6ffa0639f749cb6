from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phalanx.tracking import callbacks
from phalanx.tracking.callbacks import lightning as ours
from tests.frameworks_tracking.conftest import EXAMPLES, ROOT
from tests.frameworks_tracking.kept import Kept, clean_environment, outside_run

lightning: Any = pytest.importorskip("lightning")


def test_the_example_keeps_metrics_params_and_the_best_checkpoint(example: Callable[[str], Kept]) -> None:
    kept = example("train_lightning.py")
    losses = kept.series()["loss"]
    assert [step for step, _ in losses] == [4, 9, 14, 19, 24, 29, 34, 39, 44]
    assert losses[-1][1] < losses[0][1]
    assert len(kept.series()["val_loss"]) == 3
    assert kept.params() == {"lr": 0.1}
    (model,) = kept.events("model")
    assert model["metrics"].keys() == {"val_loss"}
    (checkpoint,) = (kept.run / "outputs" / "checkpoints").iterdir()
    assert kept.model_files() == [checkpoint.name]


def test_it_is_a_logger_of_lightning_and_of_fabric(kept: Kept) -> None:
    logger = callbacks.PhalanxLightning()
    assert isinstance(logger, lightning.pytorch.loggers.Logger)
    fabric = lightning.Fabric(accelerator="cpu", loggers=[logger])
    fabric.log("loss", 0.5, step=2)
    assert kept.series() == {"loss": [(2, 0.5)]}


def test_it_is_a_logger_of_the_older_package_too(kept: Kept) -> None:
    older = pytest.importorskip("pytorch_lightning")
    made = ours.make()
    assert issubclass(made, older.loggers.Logger)
    assert issubclass(made, lightning.pytorch.loggers.Logger)
    trainer = older.Trainer(logger=made(), accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
    assert trainer.log_dir == str(kept.run / "outputs")


@pytest.mark.parametrize("is_managed", [True, False])
def test_two_processes_in_one_replica_do_not_speak_at_once(tmp_path: Path, is_managed: bool) -> None:
    """Inside of a run each has series of its own; outside there is one replica, for which the first one speaks."""
    kept = Kept(tmp_path / "runs" / "abc")
    script = tmp_path / "train.py"
    text = (EXAMPLES / "train_lightning.py").read_text()
    script.write_text(text.replace("num_nodes=nodes", "devices=2").replace('"ddp" if nodes > 1 else "auto"', '"ddp"'))
    variables = kept.environment() if is_managed else {"PHALANX_HOME": str(tmp_path / "home")}
    environment = clean_environment(PYTHONPATH=str(ROOT / "src"), **variables)
    subprocess.run([sys.executable, str(script)], env=environment, cwd=tmp_path, check=True, timeout=180)
    found = kept if is_managed else outside_run(tmp_path / "home")
    assert len(list(found.folder.glob("*.points"))) == 1
    assert [step for step, _ in found.series()["val_loss"]] == [7, 15, 23]
    assert len(found.events("model")) == 1
    assert found.params() == {"lr": 0.1}
    other = Kept(found.run, "master-0.1")
    assert [step for step, _ in other.series().get("val_loss", [])] == ([7, 15, 23] if is_managed else [])
    assert not other.events("model")
