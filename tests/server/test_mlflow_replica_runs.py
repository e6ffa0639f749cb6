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


class Seated:
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
def seated(site: Site, tmp_path: Path) -> Any:
    found = Seated(site, tmp_path)
    yield found
    runner.sweep(found.run_id)
    for run_id in site.home.run_ids():
        runner.sweep(run_id)


def test_every_experiment_is_the_runs_own(seated: Seated) -> None:
    own = seated.says("GET", "experiments/get-by-name", {"experiment_name": "whatever"})["experiment"]
    assert own["name"] == "vision"
    assert seated.says("POST", "experiments/create", {"name": "new"})["experiment_id"] == own["experiment_id"]
    assert seated.says("GET", "experiments/get", {"experiment_id": "77"})["experiment"] == own
    found = seated.says("POST", "experiments/search", {"max_results": 10})["experiments"]
    assert [row["name"] for row in found] == ["vision"]


def test_the_first_run_that_a_replica_begins_is_its_own(seated: Seated) -> None:
    tags = [{"key": "mlflow.runName", "value": "other"}, {"key": "team", "value": "blue"}]
    assert seated.begins(tags=tags, run_name="other") == seated.run_id
    assert seated.begins("worker-0") == seated.run_id
    run = seated.site.stored(seated.run_id)
    assert (run.name, seated.site.context.store.labels(run.id)["team"]) == ("mine", "blue")
    assert seated.says("GET", "runs/get", {"run_id": seated.run_id})["run"]["info"]["status"] == "RUNNING"


def test_each_replica_has_its_own_line(seated: Seated) -> None:
    for step in range(3):
        seated.logs("loss", 1.0 + step, "master-0", step=step)
        seated.logs("loss", 2.0 + step, "worker-0", step=step)
    lines = {line.replica: list(line.values) for line in RunSeries(seated.site.folder(seated.run_id)).series("loss")}
    assert lines == {"master-0": [1.0, 2.0, 3.0], "worker-0": [2.0, 3.0, 4.0]}
    assert seated.site.stored(seated.run_id).summary["loss"] == 3.0
    asked = {"run_id": seated.run_id, "metric_key": "loss"}
    worker = seated.says("GET", "metrics/get-history", asked, "worker-0")["metrics"]
    assert [row["value"] for row in worker] == [2.0, 3.0, 4.0]
    plain = seated.site.mlflow("GET", "metrics/get-history", asked)["metrics"]
    assert [row["value"] for row in plain] == [1.0, 2.0, 3.0]


def test_the_end_that_a_client_tells_is_not_the_runs(seated: Seated) -> None:
    seated.begins()
    told = seated.says("POST", "runs/update", {"run_id": seated.run_id, "status": "FINISHED"})["run_info"]
    assert told["status"] == "RUNNING"
    assert seated.site.stored(seated.run_id).status == "running"


def test_after_its_own_run_a_replica_begins_others(seated: Seated) -> None:
    seated.begins()
    seated.says("POST", "runs/update", {"run_id": seated.run_id, "status": "FINISHED"})
    seated.site.context.run_writers.close()  # as after a restart of the server
    child = seated.begins(run_name="second")
    assert child != seated.run_id
    run = seated.site.stored(child)
    assert (run.project, run.name, run.backend) == ("vision", "second", "outside")
    assert seated.site.context.store.labels(child)["phalanx.parent"] == seated.run_id
    seated.logs("m", 1.0, run_id=child)
    assert (seated.site.attempt(child) / "mlflow.points").exists()
    assert seated.begins("worker-0") == seated.run_id, "the other replica has not ended its own"
    seated.says("POST", "runs/update", {"run_id": seated.run_id, "status": "RUNNING"})
    assert seated.begins() == seated.run_id, "it was begun again"


def test_a_nested_run_is_another_one(seated: Seated) -> None:
    seated.begins()
    child = seated.begins(tags=[{"key": "mlflow.parentRunId", "value": seated.run_id}])
    assert child != seated.run_id
    seated.says("POST", "runs/update", {"run_id": child, "status": "FINISHED"})
    assert seated.site.stored(child).status == "succeeded"
    assert seated.site.stored(seated.run_id).status == "running"


def test_children_do_not_outlive_their_run(seated: Seated) -> None:
    child = seated.begins(tags=[{"key": "mlflow.parentRunId", "value": seated.run_id}])
    seated.site.home.run(seated.run_id).ask_to_stop("enough")
    seated.site.scheduling.wake()
    seated.wait("stopped")
    deadline = time.monotonic() + 20
    while not seated.site.stored(child).is_done:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert seated.site.stored(child).status == "stopped"


def test_params_of_the_file_may_be_logged_otherwise(seated: Seated) -> None:
    """Training must not break because 0.1 was written 0.10."""
    seated.says("POST", "runs/log-parameter", {"run_id": seated.run_id, "key": "lr", "value": "0.1"})
    assert seated.site.stored(seated.run_id).params["lr"] == 0.1
    seated.says("POST", "runs/log-parameter", {"run_id": seated.run_id, "key": "lr", "value": "0.10"})
    assert seated.site.stored(seated.run_id).params["lr"] == "0.10"


def test_tags_and_artifacts_belong_to_the_run(seated: Seated) -> None:
    seated.says("POST", "runs/set-tag", {"run_id": seated.run_id, "key": "k", "value": "v"}, "worker-0")
    events = [record.data() for record in read(seated.site.attempt(seated.run_id, "worker-0") / "mlflow.events")]
    assert [event["kind"] for event in events] == ["labels"]
    base = f"/tracked/{seated.run_id}/1/worker-0/api/2.0/mlflow-artifacts/artifacts"
    token = seated.site.run_token(seated.run_id)
    answer = seated.site.ask("PUT", f"{base}/{seated.run_id}/artifacts/a/b.txt", token, content=b"x")
    assert answer.status_code == 200
    assert seated.site.ask("GET", f"{base}/{seated.run_id}/artifacts/a/b.txt", token).content == b"x"
    listed = seated.site.ask("GET", base, token, params={"path": f"{seated.run_id}/artifacts"}).json()["files"]
    assert listed == [{"path": "a", "is_dir": True}]
    assert (seated.site.folder(seated.run_id) / "artifacts" / "a" / "b.txt").read_bytes() == b"x"


def test_training_registers_what_it_made_and_changes_nothing_else(seated: Seated) -> None:
    made = seated.says("POST", "logged-models", {"experiment_id": "x", "name": "net", "source_run_id": seated.run_id})
    info = made["model"]["info"]
    base = info["artifact_uri"].replace("mlflow-artifacts:/", "/api/2.0/mlflow-artifacts/artifacts/")
    token, prefix = seated.site.run_token(seated.run_id), f"/tracked/{seated.run_id}/1/master-0"
    assert seated.site.ask("PUT", f"{prefix}{base}/MLmodel", token, content=b"x").status_code == 200
    seated.says("PATCH", f"logged-models/{info['model_id']}", {"status": "LOGGED_MODEL_READY"})
    seated.says("POST", "registered-models/create", {"name": "m"})
    source = {"source": f"models:/{info['model_id']}", "run_id": seated.run_id}
    version = seated.says("POST", "model-versions/create", {"name": "m", **source})["model_version"]
    assert version["version"] == "1"
    seated.says("POST", "registered-models/alias", {"name": "m", "alias": "champion", "version": "1"}, status=403)
    seated.says("DELETE", "registered-models/delete", {"name": "m"}, status=403)
    other = seated.site.begin()
    seated.site.ask("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{other}/artifacts/x", content=b"x")
    elsewhere = {"name": "m", "source": f"mlflow-artifacts:/{other}/artifacts/x"}
    seated.says("POST", "model-versions/create", elsewhere, status=403)


def test_replicas_that_are_not_there_cannot_speak(seated: Seated) -> None:
    token = seated.site.run_token(seated.run_id)
    for replica in ("worker-9", "%2e%2e", "master-0%2f..%2f..", "x" * 300, "worker-1x"):
        prefix = f"/tracked/{seated.run_id}/1/{replica}"
        for path, fields in (
            ("runs/create", {}),
            ("runs/log-metric", {"run_id": seated.run_id, "key": "k", "value": 1, "timestamp": 1}),
        ):
            answer = seated.site.mlflow_answer("POST", path, fields, prefix, token)
            assert answer.status_code in (400, 401, 403, 404), (replica, path, answer.text)
        there = sorted(entry.name for entry in (seated.site.folder(seated.run_id) / "replicas").iterdir())
        assert there == ["master-0", "worker-0"], replica
