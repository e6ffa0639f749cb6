"""What runs on Kubernetes cost, beside floors: rendering and submitting 500 replicas, keeping 200 runs in view, and
starting 50 pods.

For the first three, the API server is the tests' own, over HTTP on this machine: what is counted are requests, and
what is measured is us. For the last one a real control plane is brought up (root, Debian), whose pods are processes of
this machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import PHALANX
from table import ROOT, Beside, Of, Row, at_most

sys.path.insert(0, str(ROOT))

from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.cluster import Settings as ClusterSettings
from tests.kubernetes.rest import Rest

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
PODS, STARTS, PATIENCE_S = 50, 3, 300.0
MOST_TIMES = 1.3  # as long as `kubectl apply`
BARE = "bare"  # the label of a Job without Phalanx


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


# starting on a real cluster -------------------------------------------------------------------------------------------


def starting() -> Iterator[Row]:
    """From the command to the moment when all pods run: ours, our manifests with kubectl, and a Job of one line."""
    kept = os.environ.get("PHALANX_TEST_CLUSTER")  # the state of a cluster that is up already
    cluster = Cluster.found(Path(kept)) if kept else Cluster.new(ClusterSettings(version="1.34"))
    assert cluster is not None, f"there is no cluster in {kept}"
    try:
        cluster.up()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            yield from _starts(Path(scratch), cluster)
    finally:
        if not kept:
            cluster.down()


def _starts(folder: Path, cluster: Cluster) -> Iterator[Row]:
    settings = {"version": 1, "kind": "experiment", "framework": "plain", "build": {"image": "python:3.12-slim"}}
    replicas = {"replicas": {"n_workers": PODS - 1}}
    (folder / "p.yml").write_text(json.dumps({**settings, "environment": replicas, "run": {"cmd": "exec sleep 3600"}}))
    pod = {"restartPolicy": "Never", "containers": [{"name": "it", "image": "x", "command": ["sleep", "3600"]}]}
    template = {"metadata": {"labels": {"phalanx.test/is": BARE}}, "spec": pod}
    job = {"completions": PODS, "parallelism": PODS, "completionMode": "Indexed", "template": template}
    content = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": BARE}, "spec": job}
    (folder / "bare.json").write_text(json.dumps(content))
    own = {"KUBECONFIG": str(cluster.kubeconfig), "PHALANX_HOME": str(folder / "home")}
    environment = {**os.environ, **own}

    def call(*words: str) -> str:
        done = subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    planned = call(*PHALANX, "plan", "-f", "p.yml", "--on", "kubernetes")
    (folder / "planned.yml").write_text(planned)
    apply = (str(cluster.kubectl), "apply", "--validate=false", "-f")  # this kubectl is older than Indexed Jobs
    commands = {
        "phalanx run --on kubernetes": (*PHALANX, "run", "-f", "p.yml", "--on", "kubernetes", "-d"),
        "kubectl apply of its plan": (*apply, "planned.yml"),
        "kubectl apply of a bare Job": (*apply, "bare.json"),
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(STARTS + 1):
        for name, words in commands.items():
            began = time.perf_counter()
            said = call(*words)
            _until(lambda: _running(cluster.api) == PODS)
            if turn:  # the first one warms the page cache
                found[name].append(time.perf_counter() - began)
            if words[: len(PHALANX)] == tuple(PHALANX):
                call(*PHALANX, "stop", said.strip())
            else:
                call(str(cluster.kubectl), "delete", "--wait=false", "-f", words[-1])
            _until(lambda: not cluster.api.items("/api/v1/namespaces/default/pods"))
    medians = {name: statistics.median(values) for name, values in found.items()}
    ours = medians.pop("phalanx run --on kubernetes")
    for name, seconds in medians.items():
        yield Row(
            f"{PODS} pods from submit to all running, beside {name}",
            ours,
            "s",
            Beside(name, seconds),
            aim=None if name.endswith("bare Job") else at_most(MOST_TIMES, Of.FLOOR),  # its pods do much less
        )


def _running(api: Rest) -> int:
    pods = api.items("/api/v1/namespaces/default/pods")
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "the pods took too long"
        time.sleep(0.1)


PARTS = {"starting": starting, "rendering": rendering, "submitting": submitting, "watching": watching}
