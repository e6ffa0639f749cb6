"""Replicas of a run that Phalanx started, speaking MLflow through the address that names them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.local import runner
from phalanx.spool import read
from phalanx.store import Store
from phalanx.store.series.run_series import RunSeries
from phalanx.submission.submit import submit
from tests.server.site import Site
from tests.submission.samples import submission_of


class ReplicaSite:
    """A run of a master and a worker that sleep, and what they say."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        content = {
            "version": 1,
            "kind": "experiment",
            "framework": "pytorch",
            "params": {"lr": 0.1},
            "environment": {"replicas": {"n_workers": 1}},
            "run": {"cmd": "sleep 60"},
        }
        asked = submission_of(content, folder=folder, environment=os.environ, project="vision", name="mine")
        with Store.open(site.home.path) as store:
            self.run_id = submit(site.home, store, asked).id
        self.wait("running")

    def wait(self, status: str) -> None:
        deadline = time.monotonic() + 30
        while self.site.stored(self.run_id).status != status:
            assert time.monotonic() < deadline, self.site.stored(self.run_id)
            time.sleep(0.05)

    def says(self, method: str, path: str, fields: Any = None, replica: str = "master-0", *, status: int = 200) -> Any:
        prefix = f"/tracked/{self.run_id}/1/{replica}"
        answer = self.site.mlflow_answer(method, path, fields, prefix, self.site.run_token(self.run_id))
        assert answer.status_code == status, answer.text
        return answer.json()

    def begins(self, replica: str = "master-0", **fields: Any) -> str:
        run = self.says("POST", "runs/create", {"experiment_id": "anything", **fields}, replica)["run"]
        return str(run["info"]["run_id"])

    def logs(self, key: str, value: float, replica: str = "master-0", run_id: str | None = None, **more: Any) -> None:
        fields = {"run_id": run_id or self.run_id, "key": key, "value": value, "timestamp": 1_700_000_000_000, **more}
        self.says("POST", "runs/log-metric", fields, replica)


@pytest.fixture
def replica_site(site: Site, tmp_path: Path) -> Any:
    found = ReplicaSite(site, tmp_path)
    yield found
    runner.sweep(found.run_id)
    for run_id in site.home.run_ids():
        runner.sweep(run_id)


def test_every_experiment_is_the_runs_own(replica_site: ReplicaSite) -> None:
    own = replica_site.says("GET", "experiments/get-by-name", {"experiment_name": "whatever"})["experiment"]
    assert own["name"] == "vision"
    assert replica_site.says("POST", "experiments/create", {"name": "new"})["experiment_id"] == own["experiment_id"]
    assert replica_site.says("GET", "experiments/get", {"experiment_id": "77"})["experiment"] == own
    found = replica_site.says("POST", "experiments/search", {"max_results": 10})["experiments"]
    assert [row["name"] for row in found] == ["vision"]


def test_the_first_run_that_a_replica_begins_is_its_own(replica_site: ReplicaSite) -> None:
    tags = [{"key": "mlflow.runName", "value": "other"}, {"key": "team", "value": "blue"}]
    assert replica_site.begins(tags=tags, run_name="other") == replica_site.run_id
    assert replica_site.begins("worker-0") == replica_site.run_id
    run = replica_site.site.stored(replica_site.run_id)
    assert (run.name, replica_site.site.context.store.labels(run.id)["team"]) == ("mine", "blue")
    assert replica_site.says("GET", "runs/get", {"run_id": replica_site.run_id})["run"]["info"]["status"] == "RUNNING"


def test_each_replica_has_its_own_line(replica_site: ReplicaSite) -> None:
    for step in range(3):
        replica_site.logs("loss", 1.0 + step, "master-0", step=step)
        replica_site.logs("loss", 2.0 + step, "worker-0", step=step)
    lines = {
        line.replica: list(line.values)
        for line in RunSeries(replica_site.site.folder(replica_site.run_id)).series("loss")
    }
    assert lines == {"master-0": [1.0, 2.0, 3.0], "worker-0": [2.0, 3.0, 4.0]}
    assert replica_site.site.stored(replica_site.run_id).summary["loss"] == 3.0
    asked = {"run_id": replica_site.run_id, "metric_key": "loss"}
    worker = replica_site.says("GET", "metrics/get-history", asked, "worker-0")["metrics"]
    assert [row["value"] for row in worker] == [2.0, 3.0, 4.0]
    plain = replica_site.site.mlflow("GET", "metrics/get-history", asked)["metrics"]
    assert [row["value"] for row in plain] == [1.0, 2.0, 3.0]


def test_the_end_that_a_client_says_is_not_the_runs(replica_site: ReplicaSite) -> None:
    replica_site.begins()
    info = replica_site.says("POST", "runs/update", {"run_id": replica_site.run_id, "status": "FINISHED"})["run_info"]
    assert info["status"] == "RUNNING"
    assert replica_site.site.stored(replica_site.run_id).status == "running"


def test_after_its_own_run_a_replica_begins_others(replica_site: ReplicaSite) -> None:
    replica_site.begins()
    replica_site.says("POST", "runs/update", {"run_id": replica_site.run_id, "status": "FINISHED"})
    replica_site.site.context.run_writers.close()  # as after a restart of the server
    child = replica_site.begins(run_name="second")
    assert child != replica_site.run_id
    run = replica_site.site.stored(child)
    assert (run.project, run.name, run.backend) == ("vision", "second", "outside")
    assert replica_site.site.context.store.labels(child)["phalanx.parent"] == replica_site.run_id
    replica_site.logs("m", 1.0, run_id=child)
    assert (replica_site.site.attempt(child) / "mlflow.points").exists()
    assert replica_site.begins("worker-0") == replica_site.run_id, "the other replica has not ended its own"
    replica_site.says("POST", "runs/update", {"run_id": replica_site.run_id, "status": "RUNNING"})
    assert replica_site.begins() == replica_site.run_id, "it was begun again"


def test_a_nested_run_is_another_one(replica_site: ReplicaSite) -> None:
    replica_site.begins()
    child = replica_site.begins(tags=[{"key": "mlflow.parentRunId", "value": replica_site.run_id}])
    assert child != replica_site.run_id
    replica_site.says("POST", "runs/update", {"run_id": child, "status": "FINISHED"})
    assert replica_site.site.stored(child).status == "succeeded"
    assert replica_site.site.stored(replica_site.run_id).status == "running"


def test_children_do_not_outlive_their_run(replica_site: ReplicaSite) -> None:
    child = replica_site.begins(tags=[{"key": "mlflow.parentRunId", "value": replica_site.run_id}])
    replica_site.site.home.run(replica_site.run_id).ask_to_stop("enough")
    replica_site.site.scheduling.wake()
    replica_site.wait("stopped")
    deadline = time.monotonic() + 20
    while not replica_site.site.stored(child).is_done:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert replica_site.site.stored(child).status == "stopped"


def test_params_of_the_file_may_be_logged_otherwise(replica_site: ReplicaSite) -> None:
    """Training must not break because 0.1 was written 0.10."""
    replica_site.says("POST", "runs/log-parameter", {"run_id": replica_site.run_id, "key": "lr", "value": "0.1"})
    assert replica_site.site.stored(replica_site.run_id).params["lr"] == 0.1
    replica_site.says("POST", "runs/log-parameter", {"run_id": replica_site.run_id, "key": "lr", "value": "0.10"})
    assert replica_site.site.stored(replica_site.run_id).params["lr"] == "0.10"


def test_tags_and_artifacts_belong_to_the_run(replica_site: ReplicaSite) -> None:
    replica_site.says("POST", "runs/set-tag", {"run_id": replica_site.run_id, "key": "k", "value": "v"}, "worker-0")
    events = [
        record.data() for record in read(replica_site.site.attempt(replica_site.run_id, "worker-0") / "mlflow.events")
    ]
    assert [event["kind"] for event in events] == ["labels"]
    base = f"/tracked/{replica_site.run_id}/1/worker-0/api/2.0/mlflow-artifacts/artifacts"
    token = replica_site.site.run_token(replica_site.run_id)
    answer = replica_site.site.ask("PUT", f"{base}/{replica_site.run_id}/artifacts/a/b.txt", token, content=b"x")
    assert answer.status_code == 200
    assert replica_site.site.ask("GET", f"{base}/{replica_site.run_id}/artifacts/a/b.txt", token).content == b"x"
    listed = replica_site.site.ask("GET", base, token, params={"path": f"{replica_site.run_id}/artifacts"}).json()[
        "files"
    ]
    assert listed == [{"path": "a", "is_dir": True}]
    assert (replica_site.site.folder(replica_site.run_id) / "artifacts" / "a" / "b.txt").read_bytes() == b"x"


def test_training_registers_what_it_made_and_changes_nothing_else(replica_site: ReplicaSite) -> None:
    made = replica_site.says(
        "POST", "logged-models", {"experiment_id": "x", "name": "net", "source_run_id": replica_site.run_id}
    )
    info = made["model"]["info"]
    base = info["artifact_uri"].replace("mlflow-artifacts:/", "/api/2.0/mlflow-artifacts/artifacts/")
    token, prefix = replica_site.site.run_token(replica_site.run_id), f"/tracked/{replica_site.run_id}/1/master-0"
    assert replica_site.site.ask("PUT", f"{prefix}{base}/MLmodel", token, content=b"x").status_code == 200
    replica_site.says("PATCH", f"logged-models/{info['model_id']}", {"status": "LOGGED_MODEL_READY"})
    replica_site.says("POST", "registered-models/create", {"name": "m"})
    source = {"source": f"models:/{info['model_id']}", "run_id": replica_site.run_id}
    version = replica_site.says("POST", "model-versions/create", {"name": "m", **source})["model_version"]
    assert version["version"] == "1"
    replica_site.says("POST", "registered-models/alias", {"name": "m", "alias": "champion", "version": "1"}, status=403)
    replica_site.says("DELETE", "registered-models/delete", {"name": "m"}, status=403)
    other = replica_site.site.begin()
    replica_site.site.ask("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{other}/artifacts/x", content=b"x")
    elsewhere = {"name": "m", "source": f"mlflow-artifacts:/{other}/artifacts/x"}
    replica_site.says("POST", "model-versions/create", elsewhere, status=403)


def test_replicas_that_are_not_there_cannot_speak(replica_site: ReplicaSite) -> None:
    token = replica_site.site.run_token(replica_site.run_id)
    for replica in ("worker-9", "%2e%2e", "master-0%2f..%2f..", "x" * 300, "worker-1x"):
        prefix = f"/tracked/{replica_site.run_id}/1/{replica}"
        for path, fields in (
            ("runs/create", {}),
            ("runs/log-metric", {"run_id": replica_site.run_id, "key": "k", "value": 1, "timestamp": 1}),
        ):
            answer = replica_site.site.mlflow_answer("POST", path, fields, prefix, token)
            assert answer.status_code in (400, 401, 403, 404), (replica, path, answer.text)
        there = sorted(entry.name for entry in (replica_site.site.folder(replica_site.run_id) / "replicas").iterdir())
        assert there == ["master-0", "worker-0"], replica
