"""Runs on the small API server: their folders as submission leaves them, and what their pods would do and say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phalanx import plan, spec
from phalanx.backends.contract import Connections
from phalanx.backends.kubernetes.backend import KubernetesJobs
from phalanx.backends.kubernetes.engine.engine import KubernetesEngine
from phalanx.backends.kubernetes.observe.attempt_objects import AttemptObjects
from phalanx.backends.kubernetes.operators.backend import KubeflowJobs
from phalanx.backends.kubernetes.target import ClusterTarget, Settings
from phalanx.frames import Encoder
from phalanx.home.attempts import AttemptFolder
from phalanx.stored_plan import read_plan
from tests.backends.kubernetes.apiserver import FakeApiServer

ONE = """
version: 1
kind: experiment
environment: {resources: {memory: {limits: 2Gi}}, env_vars: [[API_TOKEN, hush-hush]]}
run: {cmd: python train.py}
"""
GANG = """
version: 1
kind: experiment
framework: pytorch
environment: {replicas: {n_workers: 2}}
run: {cmd: python train.py}
"""
SERVED = """
version: 1
kind: experiment
framework: tensorflow
environment: {replicas: {n_workers: 1, n_ps: 1}}
run: {cmd: python train.py}
"""
ENVIRONMENT = {"PHALANX_RUN_TOKEN": "phr_token", "HOME": "/root"}


class Works:
    """A server, and a home with runs."""

    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.config = server.kubeconfig(folder / "kubeconfig")
        self.settings = Settings(kubeconfig=str(self.config))
        self.connections = Connections()

    def engine(self, name: str = "kubernetes", **settings: Any) -> KubernetesEngine:
        return KubernetesEngine(ClusterTarget(self.settings._replace(**settings)), self.connections, name)

    def run(self, text: str = ONE, run_id: str = "abc", *, on: str = "kubernetes", **settings: Any) -> AttemptFolder:
        """Its folder, as after a submission."""
        loaded = spec.load([("polyaxonfile.yml", text.encode())])
        made = plan.make(loaded, run_id, "default")
        backend = KubeflowJobs() if on == "kubeflow" else KubernetesJobs()
        job = backend.render(made, ClusterTarget(self.settings._replace(**settings)))
        folder = self.folder / "runs" / run_id
        (folder / "job").mkdir(parents=True)
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text("print('hello')\n")
        for name, content in job.files.items():
            (folder / name).write_text(content)
        for name in ("agent.pyz", "tracking.zip"):
            (folder / "job" / name).write_bytes(b"PK" + name.encode())
        return AttemptFolder(folder, run_id, 1, tuple(one.name for one in read_plan(folder).with_command))

    def submit(self, engine: KubernetesEngine, attempt_folder: AttemptFolder) -> str:
        return engine.submit(
            attempt_folder.run_folder,
            attempt_folder.run_id,
            attempt_folder.attempt,
            1,
            working=attempt_folder.run_folder,
            environment=ENVIRONMENT,
        )

    def spawn(self, attempt_folder: AttemptFolder, *, phase: str | None = "Running") -> dict[str, str]:
        """The pods of all Jobs of a run, by the replica that each is for."""
        found = {}
        for job in self.server.names("Job"):
            document = self.server.get("Job", job)
            assert document is not None
            if document["metadata"]["labels"]["phalanx.dev/run"] != attempt_folder.run_id:
                continue
            members = document["metadata"]["annotations"]["phalanx.dev/members"].split(",")
            for member, pod in zip(members, self.server.spawn_pods(job), strict=True):
                found[member] = pod
                if phase is not None:
                    self.server.set_pod_phase(pod, phase)
        return found

    def say(self, pod: str, *lines: bytes) -> None:
        self.server.logs[pod] = self.server.logs.get(pod, b"") + b"".join(lines)


@contextmanager
def works(folder: Path, **options: Any) -> Iterator[Works]:
    with FakeApiServer(**options) as server:
        made = Works(server, folder)
        with made.connections:
            yield made


def log_lines(name: str, log: bytes, end: Mapping[str, Any] | None = None) -> list[bytes]:
    """What an agent says of a replica: that it is there, its log, how it ended."""
    encoder = Encoder(name)
    lines = [*encoder.whole(name, "agent.json", b'{"pid": 7, "started": 1, "boot": "b"}'), *encoder.log(0, log)]
    if end is not None:
        lines += encoder.whole(name, "end.json", json.dumps(an_end(name, **end)).encode())
    return lines


def an_end(name: str, **more: Any) -> dict[str, Any]:
    return {
        "version": 1, "replica": name, "attempt": 1, "cause": "finished", "code": 0, "signal": None,
        "message": "finished", "started_at": time.time() - 1, "ended_at": time.time(), "host": "pod", "log_bytes": 6,
        "last_lines": ["hello"], "peak": {"memory_mib": 12.0}, **more,
    }  # fmt: skip


def group_of(engine: KubernetesEngine) -> AttemptObjects | None:
    """The objects of the run `abc` in its first attempt, as its engine sees them; None as long as it sees none."""
    return engine.controller.groups().get(("abc", 1))


def until(holds: Callable[[], Any], patience_s: float = 60.0) -> Any:
    """What it answers once it is something; fails when that takes too long."""
    deadline = time.monotonic() + patience_s
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"it did not come: {holds}"
        time.sleep(0.02)


def read_end(attempt_folder: AttemptFolder, name: str) -> Any:
    try:
        return json.loads((attempt_folder.folder(name) / "end.json").read_bytes())
    except OSError:
        return None


def mode_of(path: Path) -> int:
    return os.stat(path).st_mode & 0o777
