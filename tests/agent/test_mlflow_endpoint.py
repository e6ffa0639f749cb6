"""MLflow's API of the agent, as its clients call it. The real clients are in tests/mlflow_client."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent.mlflow import endpoint as mlflow_endpoint
from phalanx.agent.mlflow.records import RunRecords
from phalanx.spool import read
from phalanx.store.series.points import FolderSummaries

RUN = "abcd123456"
API = "/api/2.0/mlflow"
FILES = mlflow_endpoint.FILES


class Endpoint:
    """The endpoint of one replica, and a client of it."""

    def __init__(self, run_folder: Path, replica: str = "master-0") -> None:
        self.run_folder = run_folder
        self.folder = run_folder / "replicas" / replica / "attempt-1"
        self.folder.mkdir(parents=True)
        environment = {"PHALANX_RUN_ID": RUN, "PHALANX_RUN_NAME": "quick", "PHALANX_PARAMS": '{"lr": 0.1, "a": "b"}'}
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.server = mlflow_endpoint.start(listener, "good", RunRecords(str(self.folder), environment))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {"Authorization": "Bearer good", **headers})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data

    def post(self, path: str, wanted: int = 200, method: str = "POST", **fields: Any) -> Any:
        found, data = self.send(method, f"{API}/{path}", json.dumps(fields).encode())
        assert found == wanted, data
        return json.loads(data)

    def get(self, path: str) -> Any:
        status, data = self.send("GET", f"{API}/{path}")
        assert status == 200, data
        return json.loads(data)

    def events(self, kind: str) -> list[dict[str, Any]]:
        records = [record.data() for record in read(self.folder / "mlflow-agent.events")]
        return [record for record in records if record["kind"] == kind]

    def last(self) -> dict[str, float]:
        points = FolderSummaries(self.folder, {})
        points.poll()
        return {name: summary.last for name, summary in points.summaries.items()}


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    found = Endpoint(tmp_path)
    yield found
    found.close()


def test_what_is_logged_becomes_records_of_the_replica(endpoint: Endpoint) -> None:
    run = endpoint.get(f"runs/get?run_id={RUN}")["run"]
    assert run["info"]["run_name"] == "quick"
    assert {row["key"]: row["value"] for row in run["data"]["params"]} == {"lr": "0.1", "a": "b"}
    point: dict[str, Any] = {"run_id": RUN, "key": "loss", "timestamp": 1_700_000_000_000}
    for step, value in enumerate([3.0, 2.0, "NaN"]):
        endpoint.post("runs/log-metric", **point, value=value, step=step)
    endpoint.post(
        "runs/log-batch",
        run_id=RUN,
        metrics=[{"key": "acc", "value": 0.5, "timestamp": 1, "step": 7}],
        params=[{"key": "depth", "value": "3"}],
        tags=[{"key": "team", "value": "blue"}],
    )
    assert endpoint.last()["acc"] == 0.5
    assert endpoint.last()["loss"] != endpoint.last()["loss"]
    assert endpoint.events("params")[0]["values"] == {"depth": "3"}
    assert endpoint.events("labels")[0]["values"] == {"team": "blue"}
    history = endpoint.get(f"metrics/get-history?run_id={RUN}&metric_key=loss")["metrics"]
    assert [(row["step"], row["value"]) for row in history] == [(0, 3.0), (1, 2.0), (2, "NaN")]
    data = endpoint.get(f"runs/get?run_id={RUN}")["run"]["data"]
    assert {row["key"] for row in data["metrics"]} == {"loss", "acc"}


def test_the_first_run_is_the_run_itself_and_inner_ones_have_their_name_in_front(endpoint: Endpoint) -> None:
    first = endpoint.post("runs/create", tags=[{"key": "mlflow.runName", "value": "x"}])["run"]["info"]
    assert first["run_id"] == RUN
    nested = [{"key": "mlflow.parentRunId", "value": RUN}]
    inner = endpoint.post("runs/create", run_name="fold", tags=nested)["run"]["info"]["run_id"]
    endpoint.post("runs/log-metric", run_id=inner, key="acc", value=0.5, timestamp=1)
    endpoint.post("runs/update", run_id=RUN, status="FINISHED", end_time=5)
    later = endpoint.post("runs/create", run_name="fold")["run"]["info"]["run_id"]
    endpoint.post("runs/log-batch", run_id=later, metrics=[{"key": "acc", "value": 0.75, "timestamp": 1}])
    assert len({RUN, inner, later}) == 3
    assert endpoint.last() == {"fold/acc": 0.5, "fold-3/acc": 0.75}


def test_files_are_those_of_the_run_and_never_outside(endpoint: Endpoint, tmp_path: Path) -> None:
    path = f"{FILES}/{RUN}/artifacts/notes"
    assert endpoint.send("PUT", f"{path}/a.txt", b"hello")[0] == 200
    connection = HTTPConnection("127.0.0.1", endpoint.port, timeout=30)
    headers = {"Authorization": "Bearer good"}
    connection.request("PUT", f"{path}/empty.txt", iter([b""]), headers, encode_chunked=True)  # as clients send it
    assert connection.getresponse().status == 200
    assert endpoint.send("GET", f"{path}/a.txt") == (200, b"hello")
    listed = json.loads(endpoint.send("GET", f"{FILES}?path={RUN}/artifacts/notes")[1])["files"]
    assert [(row["path"], row["file_size"]) for row in listed] == [("a.txt", 5), ("empty.txt", 0)]
    assert (tmp_path / "artifacts" / "notes" / "a.txt").read_text() == "hello"
    assert [event["path"] for event in endpoint.events("artifact")] == [
        "artifacts/notes/a.txt",
        "artifacts/notes/empty.txt",
    ]
    (tmp_path / "artifacts" / "out").symlink_to("/etc")
    for escape in (f"{RUN}/artifacts/../plan.json", f"{RUN}/artifacts/%2e%2e/x", f"{RUN}/artifacts/out/x", "../../x"):
        assert endpoint.send("PUT", f"{FILES}/{escape}", b"x")[0] in (400, 404), escape
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["artifacts", "replicas"]


def test_a_model_is_logged_and_registered(endpoint: Endpoint, tmp_path: Path) -> None:
    made = endpoint.post("logged-models", name="iris", source_run_id=RUN)["model"]["info"]
    folder = made["artifact_uri"].partition(":/")[2]
    assert endpoint.send("PUT", f"{FILES}/{folder}/MLmodel", b"flavors: {}")[0] == 200
    done = endpoint.post(f"logged-models/{made['model_id']}", method="PATCH", status="LOGGED_MODEL_READY")
    assert done["model"]["info"]["status"] == "LOGGED_MODEL_READY"
    endpoint.post("registered-models/create", name="iris")
    version = endpoint.post("model-versions/create", name="iris", source=f"models:/{made['model_id']}")
    assert version["model_version"]["version"] == "1"
    (event,) = endpoint.events("model")
    assert (tmp_path / event["path"] / "MLmodel").is_file()
    kept = json.loads((tmp_path / "logged-models.json").read_text())["models"]
    assert kept[made["model_id"]]["status"] == "LOGGED_MODEL_READY"
    other = Endpoint(tmp_path, "worker-0")
    other.post("logged-models", name="second")
    other.close()
    assert len(json.loads((tmp_path / "logged-models.json").read_text())["models"]) == 2


def test_others_are_refused_and_malformed_calls_are_answered(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in ("Bearer bad", "", "good", "Bearer gööd".encode().decode("latin-1")):
        assert endpoint.send("GET", f"{API}/runs/get?run_id={RUN}", Authorization=token)[0] == 401
    for body in (b"[]", b"{", b'{"run_id": 1}', b'{"run_id": "abcd123456", "metrics": 3}', b"[" * 100_000):
        status, data = endpoint.send("POST", f"{API}/runs/log-batch", body)
        assert 400 <= status < 500
        assert json.loads(data)["error_code"]
    assert endpoint.post("traces/search", 404)["error_code"] == "ENDPOINT_NOT_FOUND"
    assert "phalanx serve" in endpoint.post("runs/search", 501, filter="metrics.a > 1")["message"]
    monkeypatch.setattr(mlflow_endpoint, "MOST_BYTES", 100)
    assert endpoint.send("POST", f"{API}/runs/log-batch", b" " * 101)[0] == 413
    assert endpoint.get(f"runs/get?run_id={RUN}")["run"]["info"]["run_id"] == RUN


def test_a_full_disk_costs_records_not_the_training(endpoint: Endpoint) -> None:
    endpoint.folder.joinpath("mlflow-agent.points").mkdir()  # nothing can be written
    endpoint.post("runs/log-metric", run_id=RUN, key="loss", value=1, timestamp=1)
    assert endpoint.get(f"runs/get?run_id={RUN}")["run"]["data"]["metrics"][0]["value"] == 1
