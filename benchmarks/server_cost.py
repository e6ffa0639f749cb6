"""The server under load, and its reads beside a real `mlflow server` over the same data.

python benchmarks/server_cost.py load           200 clients read lists, charts and logs while 64 ranks log
PEERS=PYTHON python benchmarks/server_cost.py peers    PYTHON: one that has mlflow
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from measuring import PHALANX, ROOT, report
from phalanx.store.series.run_series import RunSeries
from ps_cost import add

CLIENTS = 200
RANKS = 64
LOAD_S = 30.0
PAUSE_S = 2.0  # of a client between an answer and its next question, on average: as often as a live page asks
MOST_P99_MS = 250.0
KNOWN_RUNS = 5_000

PEER_RUNS = 1_000
HISTORY = 20_000  # points of the longest series
ROUNDS = 30
LEAST_RATIO = 10.0


class Serving(NamedTuple):
    url: str
    token: str
    pid: int


@contextmanager
def serving(home: Path) -> Iterator[Serving]:
    environment = {**os.environ, "PHALANX_HOME": str(home)}
    command = [*PHALANX, "serve", "--port", "0", "--json"]
    # A session of its own: the kernel shares the cores out among sessions.
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield Serving(told["url"], Path(told["token_file"]).read_text().strip(), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


# 200 clients, while 64 ranks log ----------------------------------------------------------------------------------

RANK = """
import math, time
from phalanx import tracking
run = tracking.start()
until, step = time.time() + {seconds}, 0
while time.time() < until:
    run.log(loss=math.exp(-step / 400), accuracy=1 - math.exp(-step / 300), step=step)
    if step % 10 == 0:
        print("step", step, "of many", flush=True)
    step += 1
    time.sleep(0.1)
print("logged", step, flush=True)
"""
FILE = """
version: 1
kind: experiment
framework: pytorch
environment:
  replicas: {{n_workers: {workers}}}
run:
  cmd: {python} rank.py
"""


def start_ranks(home: Path, folder: Path) -> str:
    (folder / "rank.py").write_text(RANK.format(seconds=LOAD_S + 25))
    (folder / "polyaxonfile.yml").write_text(FILE.format(workers=RANKS - 1, python=sys.executable))
    environment = {**os.environ, "PHALANX_HOME": str(home)}
    command = [*PHALANX, "run", "--detach", "-f", "polyaxonfile.yml", "--json"]
    answer = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return str(json.loads(answer.stdout)["id"])


def questions(run: str) -> list[tuple[str, str]]:
    """What pages ask, as often as they do."""
    chart = f"/api/v1/runs/{run}/chart?buckets=400&mode="
    lists = [
        ("list", "/api/v1/runs?limit=100"),
        ("list", "/api/v1/runs?limit=100&q=status:succeeded&sort=metric.loss"),
        ("list", "/api/v1/runs?limit=100&offset=900"),
        ("run", f"/api/v1/runs/{run}"),
    ]
    charts = [("chart", f"{chart}mean&name=loss&name=accuracy"), ("chart", f"{chart}ranks&name=loss")]
    logs = [
        ("log", f"/api/v1/runs/{run}/lines?limit=200"),
        ("log", f"/api/v1/runs/{run}/lines?limit=200&replica=worker-7"),
    ]
    return [*lists, *charts, *logs]


async def client(number: int, serving: Serving, asked: list[tuple[str, str]], until: float, took: Any) -> None:
    """One connection that is kept, as a browser's is."""
    chance = random.Random(number)
    address = urlsplit(serving.url)
    await asyncio.sleep(chance.random() * 2 * PAUSE_S)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {serving.token}\r\n\r\n"
    while time.monotonic() < until:
        kind, path = chance.choice(asked)
        began = time.perf_counter()
        writer.write(f"GET {path} {head}".encode())
        status, body = await answer_of(reader)
        took.append((kind, (time.perf_counter() - began) * 1e3, status, len(body)))
        await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
    writer.close()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    if "transfer-encoding: chunked" in head:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return status, body
    length = next(line.partition(":")[2] for line in head.splitlines() if line.startswith("content-length:"))
    return status, await reader.readexactly(int(length))


async def crowd(serving: Serving, run: str) -> list[tuple[str, float, int, int]]:
    took: list[tuple[str, float, int, int]] = []
    until = time.monotonic() + LOAD_S
    await asyncio.gather(*(client(number, serving, questions(run), until, took) for number in range(CLIENTS)))
    return took


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def load() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home, folder = Path(name) / "home", Path(name) / "code"
        folder.mkdir()
        fill(home)
        with serving(home) as server:
            run = start_ranks(home, folder)
            wait_for_points(home / "runs" / run)
            took = asyncio.run(crowd(server, run))
            wait_until_done(server, run)
        wrong = [entry for entry in took if entry[2] != 200]
        assert not wrong, wrong[:3]
        for kind in dict.fromkeys(entry[0] for entry in took):
            of_kind = [entry[1] for entry in took if entry[0] == kind]
            size = statistics.mean(entry[3] for entry in took if entry[0] == kind) / 1024
            print(
                f"  {kind:<6} {len(of_kind):>5} answers of {size:6.1f} KiB: "
                f"median {statistics.median(of_kind):6.1f} ms, p99 {percentile(of_kind, 0.99):6.1f} ms"
            )
        p99 = percentile([entry[1] for entry in took], 0.99)
        what = f"{CLIENTS} clients, {len(took) / LOAD_S:.0f} requests/s, {RANKS} ranks log: p99"
        report(what, f"{p99:.0f} ms", f"{MOST_P99_MS:.0f} ms", met=p99 <= MOST_P99_MS)
        logged, kept = count_points(home / "runs" / run)
        report(f"points lost of {logged:,}", str(logged - kept), "0", met=logged == kept)


def fill(home: Path) -> None:
    from datetime import UTC, datetime, timedelta

    from phalanx.home.home import Home
    from phalanx.store import Store

    Home(home)
    chance = random.Random(7)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    with Store.open(home) as store, store.transaction():
        for number in range(KNOWN_RUNS):
            add(store, number, begin + timedelta(minutes=number), chance)


def wait_for_points(run_folder: Path) -> None:
    """Until every rank has logged."""
    deadline = time.monotonic() + 120
    while len(list(run_folder.glob("replicas/*/attempt-1/*.points"))) < RANKS:
        assert time.monotonic() < deadline, "the ranks did not start"
        time.sleep(0.5)


def wait_until_done(server: Serving, run: str) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        answer = httpx.get(
            f"{server.url}/api/v1/runs/{run}", headers={"Authorization": f"Bearer {server.token}"}, trust_env=False
        )
        if answer.json()["status"] in ("succeeded", "failed"):
            assert answer.json()["status"] == "succeeded", answer.json()["reason"]
            return
        time.sleep(0.5)
    raise AssertionError("the run did not end")


def count_points(run_folder: Path) -> tuple[int, int]:
    """How many the ranks say they logged, and how many there are."""
    logged = 0
    for log in run_folder.glob("replicas/*/attempt-1/log"):
        logged += int(log.read_text().rsplit("logged ", 1)[1])
    series = RunSeries(run_folder)
    kept = sum(len(set(line.steps)) for line in series.series("loss"))
    return logged, kept


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


def peers() -> None:
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
                compare(reads_of_mlflow(them, theirs_id), reads_of_ours(us, ours_id))


def longest_run(us: httpx.Client) -> str:
    """Which of the imported runs has the long series."""
    (row,) = us.get("/api/v1/runs", params={"q": "metric.loss:>=0", "limit": 5}).json()["runs"]
    return str(row["id"])


def compare(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    for what, ask_them in theirs.items():
        took: dict[str, list[float]] = {"theirs": [], "ours": []}
        for _ in range(ROUNDS):
            for who, ask in (("theirs", ask_them), ("ours", ours[what])):
                began = time.perf_counter()
                answer = ask()
                took[who].append((time.perf_counter() - began) * 1e3)
                assert answer.status_code == 200, answer.text[:500]
        them, us = statistics.median(took["theirs"]), statistics.median(took["ours"])
        print(f"  {what}: mlflow server {them:.1f} ms, phalanx serve {us:.1f} ms")
        report(what, f"{them / us:.1f}x", f"{LEAST_RATIO:g}x", met=them / us >= LEAST_RATIO)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["load"]:
        {"load": load, "peers": peers}[part]()
