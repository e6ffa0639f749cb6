"""MLflow inside runs that Phalanx starts, while no server is running: unchanged scripts, nothing set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mlflow_client.conftest import COMMAND

# The first steps of MLflow's documentation: params, a metric, a tag, a model that is registered and loaded again.
QUICKSTART = """
import mlflow
from mlflow.models import infer_signature
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

X, y = load_iris(return_X_y=True)
params = {"solver": "lbfgs", "max_iter": 200}
mlflow.set_experiment("MLflow Quickstart")
with mlflow.start_run():
    mlflow.log_params(params)
    model = LogisticRegression(**params).fit(X, y)
    mlflow.log_metric("accuracy", model.score(X, y))
    mlflow.set_tag("Training Info", "Basic LR model for iris data")
    mlflow.log_text("", "notes/empty.txt")
    logged = mlflow.sklearn.log_model(
        model, "iris_model", signature=infer_signature(X, model.predict(X)), registered_model_name="quickstart"
    )
assert (mlflow.pyfunc.load_model(logged.model_uri).predict(X[:5]) == model.predict(X[:5])).all()
"""

RANKS = """
import os, sys
import mlflow
from mlflow import MlflowClient
rank = int(os.environ["RANK"])
with mlflow.start_run() as run:
    mlflow.log_params({"lr": 0.1, f"of_{rank}": rank})
    for step in range(5):
        mlflow.log_metrics({"loss": 10.0 * rank + step, "bad": float("nan")}, step=step)
    mlflow.log_dict({"rank": rank}, f"rank-{rank}.json")
    with mlflow.start_run(nested=True, run_name="fold"):
        mlflow.log_metric("acc", 0.5 + rank)
    client = MlflowClient()
    assert [point.value for point in client.get_metric_history(run.info.run_id, "loss")][-1] == 10.0 * rank + 4
    assert client.get_run(run.info.run_id).data.params["lr"] == "0.1"
    assert [found.path for found in client.list_artifacts(run.info.run_id)][0].startswith("rank-")
"""


class Unserved:
    """A home without a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PHALANX_"))}
        self.environment = {**kept, "PHALANX_HOME": str(folder / "home")}

    def phalanx(self, *arguments: str) -> Any:
        done = subprocess.run(
            [COMMAND, *arguments, "--json"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def run(self, script: str, workers: int = 0) -> Any:
        (self.folder / "train.py").write_text(script)
        replicas = f"environment: {{replicas: {{n_workers: {workers}}}}}\nframework: pytorch\n" if workers else ""
        text = f"version: 1\nkind: experiment\n{replicas}run: {{cmd: '{sys.executable} train.py'}}\n"
        (self.folder / "polyaxonfile.yml").write_text(text)
        run = self.phalanx("run", "-f", "polyaxonfile.yml")
        logs = list(self.folder.glob("home/runs/*/replicas/*/*/log"))
        assert run["status"] == "succeeded", "\n".join(path.read_text() for path in logs)
        return run

    def series(self, run_id: str, metric: str) -> dict[str, list[float]]:
        (found,) = self.phalanx("metrics", run_id, metric)["metrics"]
        return {line["replica"]: line["values"] for line in found["series"]}


@pytest.fixture
def unserved(tmp_path: Path) -> Unserved:
    return Unserved(tmp_path)


@pytest.mark.smoke
def test_the_quickstart_leaves_its_metric_params_files_and_model_in_the_run(unserved: Unserved) -> None:
    run = unserved.run(QUICKSTART)
    shown = unserved.phalanx("show", run["id"])
    assert shown["params"]["solver"] == "lbfgs"
    assert unserved.series(run["id"], "accuracy")["master-0"][-1] > 0.9
    folder = unserved.folder / "home" / "runs" / run["id"]
    assert (folder / "artifacts" / "notes" / "empty.txt").read_bytes() == b""
    assert [model["name"] for model in unserved.phalanx("models")["models"]] == ["quickstart"]
    assert [path.name for path in folder.glob("**/MLmodel")]
    assert not [path.name for path in unserved.folder.iterdir() if path.name in ("mlruns", "mlflow.db")]


def test_every_rank_logs_to_the_run(unserved: Unserved) -> None:
    run = unserved.run(RANKS, workers=2)
    expected = {f"{name}": [10.0 * rank + step for step in range(5)] for rank, name in enumerate(REPLICAS)}
    assert unserved.series(run["id"], "loss") == expected
    assert unserved.series(run["id"], "fold/acc") == {name: [0.5 + rank] for rank, name in enumerate(REPLICAS)}
    folder = unserved.folder / "home" / "runs" / run["id"] / "artifacts"
    assert sorted(path.name for path in folder.iterdir()) == ["rank-0.json", "rank-1.json", "rank-2.json"]
    assert unserved.phalanx("show", run["id"])["params"]["of_2"] == "2"


REPLICAS = ("master-0", "worker-0", "worker-1")
