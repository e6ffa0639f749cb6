"""Plans and sites, as short texts."""

from __future__ import annotations

from typing import Any

import yaml

from phalanx import plan, spec
from phalanx.plan import Plan
from phalanx.sites.checks import SiteFinding, check
from phalanx.sites.model import Site
from phalanx.sites.profile_reader import load

CLUSTER = """
name: here
nodes:
  - {count: 4, cpus: 8, memory: 32Gi, features: [rack1], partitions: [main, short]}
  - {count: 2, cpus: 48, memory: 480Gi, gpus: 4, gpu_type: a100, features: [nvlink], partitions: [gpu]}
partitions:
  - {name: main, default: true, max_time: 3d}
  - {name: short, max_time: 3h}
  - {name: gpu, max_time: 1d, max_nodes: 2, accounts: [ai]}
  - {name: old, max_time: 30d, up: false}
gpu_types:
  - {name: a100, cpus: 12, memory: 120Gi}
qos:
  - {name: normal}
  - {name: limited, max_time: 20m, max_gpus: 2, max_cpus: 4}
"""


def site(text: str = CLUSTER, **policy: Any) -> Site:
    document = yaml.safe_load(text)
    document.setdefault("policy", {}).update(policy)
    return load("site.yml", yaml.safe_dump(document).encode())


def resources(cpu: float | None = None, memory: str | None = None, gpu: int | None = None) -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": memory, "gpu": gpu}
    return {"resources": {name: {"requests": value} for name, value in asked.items() if value is not None}}


def run(workers: int = 0, *, worker: dict[str, Any] | None = None, ps: int = 0, **environment: Any) -> Plan:
    """An experiment; `worker` are the settings of its workers, the rest is its `environment`."""
    document: dict[str, Any] = {"version": 1, "kind": "experiment", "run": {"cmd": "true"}, "environment": environment}
    if workers or ps:
        document["framework"] = "tensorflow" if ps else "pytorch"
        environment["replicas"] = {"n_workers": workers, "processes": 1}
        if ps:
            environment["replicas"]["n_ps"] = ps
        if worker is not None:
            environment["replicas"]["default_worker"] = worker
    return plan.make(spec.load([("file.yml", yaml.safe_dump(document).encode())]), "run")


def findings(made: Plan, at: Site, severity: str = "error", **environ: str) -> dict[str, SiteFinding]:
    """What is said, by the path that it is said of."""
    return {found.path: found for found in check(made, at, environ) if found.severity == severity}
