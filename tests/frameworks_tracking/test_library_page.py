"""The scripts of docs/track/libraries.md, through `phalanx run`: metrics, outputs and models are there afterwards."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.frameworks_tracking.conftest import ROOT

PAGE = (ROOT / "docs" / "track" / "libraries.md").read_text()
COMMAND = os.environ.get("PHALANX_COMMAND", str(ROOT / ".venv" / "bin" / "phalanx"))


class Script(NamedTuple):
    """A script of the page, and what its run has afterwards."""

    library: str
    metrics: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # patterns of its outputs, artifacts and models
    models: int = 0  # registered ones, and outputs that look like models
    number: int = 0  # among those of its section
    environment: str = ""  # the name of another one than that of the tests


SCRIPTS = [
    Script("Keras", ("train/epoch_loss", "validation/epoch_mae"), ("*.keras", "*tfevents*"), 1, 0, "tensorflow"),
    Script("PyTorch", (), ("mnist_cnn.pt",), 1),
    Script("PyTorch", ("loss",), ("mnist_cnn.pt",), 1, 1),
    Script("Lightning", ("train_loss",), ("*.ckpt", "*tfevents*", "hparams.yaml"), 1),
    Script("Hugging Face Trainer", ("train/loss",), ("model.safetensors", "*tfevents*"), 1),
    Script("scikit-learn", ("test/accuracy",), ("model.joblib",), 1),
    Script("XGBoost", ("valid/logloss",), (), 1),
    Script("LightGBM", ("valid/auc",), (), 1),
    Script("MLflow", ("loss", "training_accuracy_score"), ("MLmodel", "estimator.html"), environment="mlflow-3"),
    Script("Weights & Biases", ("loss",)),
    Script("TensorBoard", ("loss",), ("*tfevents*",)),
]


def text_of(script: Script) -> str:
    section = PAGE.split(f"\n## You use {script.library}\n")[1].split("\n## ")[0]
    return str(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[script.number])


def python_of(script: Script) -> str:
    if not script.environment:
        return sys.executable
    found = importlib.util.spec_from_file_location("environments", ROOT / "scripts" / "environments.py")
    assert found is not None
    assert found.loader is not None
    environments = importlib.util.module_from_spec(found)
    found.loader.exec_module(environments)
    python = environments.built(script.environment)
    if python is None:
        pytest.skip(f"`make builds` builds the environment {script.environment}")
    return str(python)


def phalanx(folder: Path, *arguments: str) -> Any:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MLFLOW_", "WANDB_", "KERAS_", "PYTHON"))
    }
    environment = {**kept, "PHALANX_HOME": str(folder / "home"), "WANDB_SILENT": "true", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [COMMAND, *arguments, "--json"],
        cwd=folder / "code",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.library}-{script.number}")
def test_a_script_of_the_page_leaves_what_the_page_says(script: Script, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(text_of(script))
    (code / "polyaxonfile.yml").write_text(f"version: 1\nkind: experiment\nrun:\n  cmd: {python_of(script)} train.py\n")
    run_id = phalanx(tmp_path, "run")["id"]
    shown = phalanx(tmp_path, "show", run_id)
    assert shown["status"] == "succeeded"
    assert set(script.metrics) <= set(shown["summary"]), shown["summary"]
    run = tmp_path / "home" / "runs" / run_id
    files = [path for folder in ("outputs", "artifacts", "models") for path in (run / folder).rglob("*")]
    for pattern in script.files:
        assert any(path.match(pattern) for path in files), (pattern, files)
    models = phalanx(tmp_path, "models")
    assert len(models["models"]) + len(models["candidates"]) >= script.models
