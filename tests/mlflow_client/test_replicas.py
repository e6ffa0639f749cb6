"""MLflow inside runs that Phalanx starts: nothing in the training code tells it where to log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.mlflow_client.conftest import Served

FLUENT = """
import os
import mlflow
rank = int(os.environ.get("RANK", "0"))
mlflow.set_experiment("whatever its author called it")
with mlflow.start_run() as run:
    assert run.info.run_id == os.environ["PHALANX_RUN_ID"], run.info.run_id
    mlflow.log_params({"lr": 0.1, "extra": "x"})
    for step in range(5):
        mlflow.log_metric("loss", 10 * rank + step, step=step)
    if rank == 0:
        mlflow.log_text("hello", "notes/hello.txt")
        with mlflow.start_run(nested=True, run_name="inner"):
            mlflow.log_metric("inner", 1.0)
with mlflow.start_run(run_name="after") as after:
    assert after.info.run_id != os.environ["PHALANX_RUN_ID"]
    mlflow.log_metric("after", rank)
"""

LOGGER = """
# as Lightning's MLFlowLogger does it: by a client, without the fluent run
import os, time
from mlflow import MlflowClient
from mlflow.entities import Metric
client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
found = client.get_experiment_by_name("lightning_logs")
key = found.experiment_id if found is not None else client.create_experiment("lightning_logs")
run = client.create_run(experiment_id=key, tags={"mlflow.runName": "lightning"})
assert run.info.run_id == os.environ["PHALANX_RUN_ID"]
now = int(time.time() * 1000)
client.log_batch(run_id=run.info.run_id, metrics=[Metric("train_loss", 0.5, now, 1), Metric("epoch", 0.0, now, 1)])
client.log_param(run.info.run_id, "hidden", 8)
client.set_terminated(run.info.run_id, status="FINISHED")
"""


def start(served: Served, folder: Path, script: str, replicas: int = 0) -> Any:
    (folder / "train.py").write_text(script)
    lines = ["version: 1", "kind: experiment", "framework: pytorch", "params: {lr: 0.1}"]
    if replicas:
        lines += ["environment:", "  replicas:", f"    n_workers: {replicas}"]
    lines += ["run:", f"  cmd: {sys.executable} {folder / 'train.py'}"]
    (folder / "polyaxonfile.yml").write_text("\n".join(lines) + "\n")
    return served.phalanx("run", "-f", str(folder / "polyaxonfile.yml"))


def test_every_replica_logs_to_its_own_run(served: Served, client: Any, tmp_path: Path) -> None:
    run = start(served, tmp_path, FLUENT, replicas=1)
    assert run["status"] == "succeeded", run
    found = client.get_run(run["id"])
    assert found.data.params == {"lr": "0.1", "extra": "x"}
    assert [point.value for point in client.get_metric_history(run["id"], "loss")] == [0.0, 1.0, 2.0, 3.0, 4.0]
    shown = served.phalanx("metrics", run["id"])
    assert shown
    replicas = served.folder(run["id"]) / "replicas"
    assert sorted(entry.name for entry in replicas.iterdir()) == ["master-0", "worker-0"]
    assert (served.folder(run["id"]) / "artifacts" / "notes" / "hello.txt").read_text() == "hello"
    others = client.search_runs(["0"], f"tags.phalanx.parent = '{run['id']}'", order_by=["start_time"])
    assert sorted(one.info.run_name for one in others) == ["after", "after", "inner"]
    assert {one.info.status for one in others} == {"FINISHED"}


def test_a_client_that_makes_its_own_run_is_given_this_one(served: Served, client: Any, tmp_path: Path) -> None:
    run = start(served, tmp_path, LOGGER)
    assert run["status"] == "succeeded", run
    found = client.get_run(run["id"])
    assert found.data.metrics == {"train_loss": 0.5, "epoch": 0.0}
    assert found.data.params["hidden"] == "8"
