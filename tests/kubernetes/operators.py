"""Stands in for Kubeflow's training-operator and mpi-operator: pods, services and statuses as theirs, and no more.

    python -m tests.kubernetes.operators <state of the cluster>

The real ones are containers that nothing here can pull. Names, labels and variables are theirs: `training` has what is
not MPI, and `mpi` the rest.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.kubernetes import webhook
from tests.kubernetes.cluster import Settings
from tests.kubernetes.crds import definitions
from tests.kubernetes.mpi import MpiJob
from tests.kubernetes.rest import Answered, Rest, suppress_code
from tests.kubernetes.training import KINDS, PREFIX, Kind, Training

LOOK_S = 0.3


def kinds(mpi_version: str) -> list[Kind]:
    mpi = Kind("MPIJob", "mpiReplicaSpecs", "", 0, ("Launcher", "Worker"), ("Launcher",), mpi_version)
    return [*KINDS, mpi]


class Operator:
    """Looks at all jobs again and again, and does what is missing."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.settings = Settings(**json.loads((state / "settings.json").read_text()))
        self.api = Rest.of(state / "admin.kubeconfig")
        self.kinds = kinds(self.settings.mpi_version)

    def run(self) -> None:
        for definition in definitions(self.settings.mpi_version):
            self.api.ensure(definition)
        for kind in self.kinds:
            self._await(kind)
        webhook.serve(self.api, self.state)
        (self.state / "operators.ready").touch()
        changed = threading.Event()
        for kind in self.kinds:
            threading.Thread(target=self._watch, args=(f"{kind.path}/{kind.plural}", changed), daemon=True).start()
        threading.Thread(target=self._watch, args=("/api/v1/pods", changed), daemon=True).start()
        while True:
            changed.wait(5.0)
            changed.clear()
            for kind in self.kinds:
                try:
                    self._reconcile(kind)
                except (httpx.HTTPError, Answered, OSError) as error:
                    print(kind.name, error, file=sys.stderr, flush=True)
                    changed.set()
            time.sleep(LOOK_S)

    def _await(self, kind: Kind) -> None:
        while True:
            with suppress_code(404, 503):
                self.api.get(f"{kind.path}/{kind.plural}")
                return
            time.sleep(0.1)

    def _watch(self, path: str, changed: threading.Event) -> None:
        while True:
            try:
                for _ in self.api.watch(path):
                    changed.set()
            except (httpx.HTTPError, Answered, OSError, ValueError):
                time.sleep(0.5)

    def _reconcile(self, kind: Kind) -> None:
        jobs = self.api.items(f"{kind.path}/{kind.plural}")
        if not jobs:
            return
        pods = self.api.items("/api/v1/pods", labelSelector=f"{PREFIX}/job-name")
        services = self.api.items("/api/v1/services", labelSelector=f"{PREFIX}/job-name")
        for job in jobs:
            if job["metadata"].get("deletionTimestamp"):
                continue
            whole = {"apiVersion": f"kubeflow.org/{kind.version}", "kind": kind.name, **job}
            mine = [pod for pod in pods if _is_owned(pod, job) or _is_launcher_of(pod, job)]
            if kind.name == "MPIJob":
                MpiJob(self.api, kind, whole, mine).do()
            else:
                Training(self.api, kind, whole, mine, [one for one in services if _is_owned(one, job)]).do()


def _is_owned(pod: dict[str, Any], job: dict[str, Any]) -> bool:
    return any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())


def _is_launcher_of(pod: dict[str, Any], job: dict[str, Any]) -> bool:
    """Made by the Job of a launcher."""
    meta, name = pod["metadata"], job["metadata"]["name"]
    is_here = meta["namespace"] == job["metadata"]["namespace"]
    return is_here and any(owner["name"] == f"{name}-launcher" for owner in meta.get("ownerReferences") or ())


if __name__ == "__main__":
    Operator(Path(sys.argv[1])).run()
