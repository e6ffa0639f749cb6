"""What runs on Kubernetes cost, beside floors: rendering and submitting 500 replicas, keeping 200 runs in view.

The API server is the tests' own, over HTTP on this machine: what is counted are requests, and what is measured is us.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from table import ROOT, Beside, Of, Row, at_most

sys.path.insert(0, str(ROOT))

from tests.backends.kubernetes.apiserver import FakeApiServer

from phalanx import backends, plan, spec
from phalanx.backends.agent_zip import carry
from phalanx.backends.contract import Connections
from phalanx.backends.kubernetes.cluster.api import Api, connect, kind_of
from phalanx.backends.kubernetes.cluster.assumed_offer import OFFLINE
from phalanx.backends.kubernetes.engine.engine import KubernetesEngine
from phalanx.backends.kubernetes.target import ClusterTarget, Settings
from phalanx.home.attempts import AttemptFolder
from phalanx.plan import Plan

REPLICAS, ROUNDS = 500, 5
RUNS, WATCH_S = 200, 30.0
AT_ONCE = 8
MOST_RENDER_S = 1.0


def made_of(replicas: int, run_id: str, *, different: bool) -> Plan:
    document: dict[str, Any] = {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "environment": {"replicas": {"n_workers": replicas - 1}},
        "run": {"cmd": "python train.py"},
    }
    if different:  # so that no two replicas can share a Job
        entries = [{"index": at, "resources": {"memory": {"limits": 1024 + at}}} for at in range(replicas - 1)]
        document["environment"]["replicas"]["worker"] = entries
    return plan.make(spec.load_document("p.yml", document), run_id)


def median_s(act: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def rendering() -> Iterator[Row]:
    backend = backends.find("kubernetes")
    for different in (False, True):
        made = made_of(REPLICAS, "bench", different=different)
        objects = json.loads(backend.render(made, ClusterTarget()).files["manifests.json"])
        ours = median_s(lambda made=made: backend.render(made, ClusterTarget()))  # type: ignore[misc]
        floor = Beside("json.dumps", median_s(lambda objects=objects: json.dumps(objects)))  # type: ignore[misc]
        what = f"{REPLICAS} {'different ' if different else ''}replicas rendered"
        yield Row(what, ours, "s", floor, aim=at_most(MOST_RENDER_S))


def queued(folder: Path, run_id: str, made: Plan, place: ClusterTarget) -> Path:
    """The folder of a run, as `phalanx run` leaves it."""
    run = folder / "runs" / run_id
    run.mkdir(parents=True)
    for name, text in backends.find("kubernetes").render(made, place).files.items():
        (run / name).write_text(text)
    carry(run / "job", folder / "agents")
    return run


def bare(api: Api, run: Path) -> None:
    """The same objects, one request each, by as many at once as we are."""
    objects = json.loads((run / "manifests.json").read_bytes())

    def create(one: dict[str, Any]) -> None:
        api.create(kind_of(one), one)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(create, objects))


def submitting() -> Iterator[Row]:
    ours, floor, most = [], [], 0
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as scratch, FakeApiServer() as server:
            folder = Path(scratch)
            settings = Settings(kubeconfig=str(server.kubeconfig(folder / "config")))
            made = made_of(REPLICAS, "bench", different=True)
            run = queued(folder, "bench", made, ClusterTarget(settings, OFFLINE))
            with Connections() as connections:
                engine = KubernetesEngine(ClusterTarget(settings, OFFLINE), connections)
                engine.controller.wait_ready()
                began = time.perf_counter()
                engine.submit(run, "bench", 1, 1, working=run, environment={"PHALANX_RUN_TOKEN": "x"})
                ours.append(time.perf_counter() - began)
            most = max(most, server.most_at_once)
        with tempfile.TemporaryDirectory() as scratch, FakeApiServer() as server:
            folder = Path(scratch)
            settings = Settings(kubeconfig=str(server.kubeconfig(folder / "config")))
            run = queued(folder, "bench", made, ClusterTarget(settings, OFFLINE))
            api = connect(settings)
            began = time.perf_counter()
            bare(api, run)
            floor.append(time.perf_counter() - began)
    requests = Beside("bare requests", statistics.median(floor))
    yield Row(f"{REPLICAS} Jobs submitted", statistics.median(ours), "s", requests, aim=at_most(1.5, Of.FLOOR))
    yield Row("requests at once", most, "", aim=at_most(AT_ONCE + 2))


def watching() -> Iterator[Row]:
    """Requests while runs go on and nothing happens."""
    rates = {count: _rate(count) for count in (1, RUNS)}
    aim = at_most(max(rates[1] * 1.5, 0.5))
    yield Row(f"requests while {RUNS} runs go on", rates[RUNS], "/s", Beside("one run", rates[1]), aim=aim)


def _rate(count: int) -> float:
    with tempfile.TemporaryDirectory() as scratch, FakeApiServer() as server, Connections() as connections:
        folder = Path(scratch)
        settings = Settings(kubeconfig=str(server.kubeconfig(folder / "config")))
        place = ClusterTarget(settings._replace(home_claim="home"), OFFLINE)  # logs are not what is counted here
        engine = KubernetesEngine(ClusterTarget(settings, OFFLINE), connections)
        attempt_folders = {}
        for number in range(count):
            run_id = f"r{number}"
            run = queued(folder, run_id, made_of(2, run_id, different=False), place)
            handle = engine.submit(run, run_id, 1, 1, working=run, environment={"PHALANX_RUN_TOKEN": "x"})
            attempt_folder = attempt_folders[handle] = AttemptFolder(run, run_id, 1, ("master-0", "worker-0"))
            for name in attempt_folder.replicas:  # their agents have come
                attempt_folder.folder(name).mkdir(parents=True)
                (attempt_folder.folder(name) / "agent.json").write_text("{}")
            for job in server.names("Job"):
                if f"-{run_id}-" in f"{job}-":
                    for pod in server.spawn_pods(job):
                        server.set_pod_phase(pod, "Running")
        for handle, attempt_folder in attempt_folders.items():
            engine.fetch(attempt_folder, handle)
        time.sleep(3.0)
        before, began = len(server.requests), time.perf_counter()
        while time.perf_counter() - began < WATCH_S:
            assert len(engine.observe(attempt_folders)) == count
            time.sleep(1.0)
        return (len(server.requests) - before) / (time.perf_counter() - began)


PARTS = {"rendering": rendering, "submitting": submitting, "watching": watching}
