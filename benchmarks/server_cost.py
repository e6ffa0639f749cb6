"""Reads of the server beside those of a real `mlflow server` over the same data. `server_load.py` has many readers.

PEERS is a Python that has mlflow.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from measuring import PHALANX, ROOT
from server_load import serving
from table import Beside, Of, Row, at_most

PEER_RUNS = 1_000
HISTORY = 20_000  # points of the longest series
ROUNDS = 30
LEAST_RATIO = 10.0


# beside MLflow ----------------------------------------------------------------------------------------------------

FILL_MLFLOW = """
import random, sys, time
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient
uri, runs, history = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = MlflowClient(tracking_uri=uri)
experiment = client.create_experiment("bench")
chance, now = random.Random(7), int(time.time() * 1000)
for number in range(runs):
    run = client.create_run(experiment).info.run_id
    params = [Param(f"p{place}", str(chance.random())) for place in range(10)]
    metrics = [Metric(f"m{place}", chance.random(), now + step, step) for place in range(5) for step in range(20)]
    client.log_batch(run, metrics=metrics, params=params)
    if number == 0:
        print(run)
        for first in range(0, history, 1000):
            client.log_batch(run, metrics=[
                Metric("loss", chance.random(), now + step, step) for step in range(first, first + 1000)])
    client.set_terminated(run)
"""


@contextmanager
def mlflow_server(python: str, uri: str, folder: Path) -> Iterator[str]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [python, "-m", "mlflow", "server", "--backend-store-uri", uri, "--port", str(port), "--workers", "1"]
    with (folder / "mlflow.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                    break
            assert time.monotonic() < deadline, (folder / "mlflow.log").read_text()[-2000:]
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def reads_of_mlflow(client: httpx.Client, run: str) -> dict[str, Any]:
    api = "/api/2.0/mlflow"
    found = client.get(f"{api}/experiments/get-by-name", params={"experiment_name": "bench"}).json()
    search = {"experiment_ids": [found["experiment"]["experiment_id"]], "max_results": 100}
    bulk: dict[str, Any] = {"run_ids": run, "metric_key": "loss", "max_results": 400}
    return {
        "a list of 100 runs": lambda: client.post(f"{api}/runs/search", json=search),
        "… by a metric": lambda: client.post(
            f"{api}/runs/search", json={**search, "filter": "metrics.m1 < 0.5", "order_by": ["metrics.m1 ASC"]}
        ),
        "a chart of 20,000 points": lambda: client.get(
            "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval", params=bulk
        ),
        "their whole history": lambda: client.get(
            f"{api}/metrics/get-history", params={"run_id": run, "metric_key": "loss", "max_results": 25_000}
        ),
    }


def reads_of_ours(client: httpx.Client, run: str) -> dict[str, Any]:
    series = f"/api/v1/runs/{run}/metrics/series"
    query: dict[str, Any] = {"q": "metric.m1:<0.5", "sort": "metric.m1", "limit": 100}
    return {
        "a list of 100 runs": lambda: client.get("/api/v1/runs", params={"limit": 100}),
        "… by a metric": lambda: client.get("/api/v1/runs", params=query),
        "a chart of 20,000 points": lambda: client.get(f"/api/v1/runs/{run}/chart", params={"name": "loss"}),
        "their whole history": lambda: client.get(series, params={"name": "loss", "buckets": 0}),
    }


def peers() -> Iterator[Row]:
    python = os.environ.get("PEERS", str(ROOT / ".venv-peers" / "bin" / "python"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, home = Path(name), Path(name) / "home"
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        filling = [python, "-W", "ignore", "-c", FILL_MLFLOW, uri, str(PEER_RUNS), str(HISTORY)]
        filled = subprocess.run(filling, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
        theirs_id = filled.stdout.split()[0]
        environment = {**os.environ, "PHALANX_HOME": str(home)}
        bringing = [*PHALANX, "import", str(folder / "mlflow.db")]
        subprocess.run(bringing, check=True, env=environment, stdout=subprocess.DEVNULL)
        with mlflow_server(python, uri, folder) as url, serving(home) as server:
            own = {"Authorization": f"Bearer {server.token}"}
            with (
                httpx.Client(base_url=url, timeout=120, trust_env=False) as them,
                httpx.Client(base_url=server.url, timeout=120, headers=own, trust_env=False) as us,
            ):
                ours_id = longest_run(us)
                yield from compare(reads_of_mlflow(them, theirs_id), reads_of_ours(us, ours_id))


def longest_run(us: httpx.Client) -> str:
    """Which of the imported runs has the long series."""
    (row,) = us.get("/api/v1/runs", params={"q": "metric.loss:>=0", "limit": 5}).json()["runs"]
    return str(row["id"])


def compare(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[Row]:
    for what, ask_them in theirs.items():
        took: dict[str, list[float]] = {"theirs": [], "ours": []}
        for _ in range(ROUNDS):
            for who, ask in (("theirs", ask_them), ("ours", ours[what])):
                began = time.perf_counter()
                answer = ask()
                took[who].append((time.perf_counter() - began) * 1e3)
                assert answer.status_code == 200, answer.text[:500]
        them, us = statistics.median(took["theirs"]), statistics.median(took["ours"])
        yield Row(what, us / 1e3, "s", peer=Beside("mlflow server", them / 1e3), aim=at_most(1 / LEAST_RATIO, Of.PEER))


PARTS = {"reads": peers}
