"""Files of every shape that goes to Kubernetes, and the clusters that they go to."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx import backends, plan, spec
from phalanx.backends.contract import Job
from phalanx.backends.kubernetes.cluster.assumed_offer import OFFLINE, assumed
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget, DataVolume, Settings
from phalanx.plan import Plan

SETTINGS = Settings(
    stores=MappingProxyType(
        {
            "images": DataVolume(claim="datasets", path="imagenet", is_read_only=True),
            "results": DataVolume(claim="results"),
        }
    )
)


class Case(NamedTuple):
    text: str
    backend: str = "kubernetes"
    cluster: Cluster = OFFLINE
    settings: Settings = SETTINGS


SINGLE = """
version: 1
kind: experiment
name: one
params: {lr: 0.1}
build: {image: "pytorch/pytorch:2.5.1"}
environment:
  resources: {cpu: {requests: 2, limits: 4}, memory: {requests: 4Gi, limits: 8Gi}, gpu: {requests: 1, limits: 1}}
  node_selector: {pool: fast}
  tolerations: [{key: dedicated, operator: Equal, value: training, effect: NoSchedule}]
  labels: {team: vision}
  annotations: {note: "a first try"}
  service_account: trainer
  image_pull_secrets: [registry]
  secret_refs: [wandb]
  config_map_refs: [defaults]
  data_refs: [images]
  artifact_refs: [results]
  env_vars: [[MODE, fast], [API_TOKEN, hush-hush]]
  timeout: 2h
run: {cmd: "python train.py --lr={{ lr }}"}
"""
DISTRIBUTED = """
version: 1
kind: experiment
framework: pytorch
environment:
  resources: {cpu: {requests: 1}, memory: {limits: 2Gi}}
  replicas:
    n_workers: 4
    default_worker: {resources: {cpu: {requests: 2}}}
    worker: [{index: 2, resources: {gpu: {requests: 1, limits: 1}}}]
run: {cmd: python train.py}
"""
TENSORFLOW = """
version: 1
kind: experiment
framework: tensorflow
backend: kubeflow
environment:
  replicas: {n_workers: 3, n_ps: 2, default_ps: {resources: {memory: {limits: 4Gi}}}}
run: {cmd: python train.py}
"""
ELASTIC = """
version: 1
kind: experiment
framework: pytorch
backend: kubeflow
environment:
  replicas: {n_workers: 4}
  kubernetes: {min_workers: 2, max_workers: 8}
run: {cmd: torchrun train.py}
"""
PYTORCH = """
version: 1
kind: experiment
framework: pytorch
backend: kubeflow
environment: {replicas: {n_workers: 2}}
run: {cmd: python train.py}
"""
MPI = """
version: 1
kind: experiment
backend: mpi
environment: {replicas: {n_workers: 4}}
run: {cmd: python train.py}
"""
STEPS = """
version: 1
kind: job
build: {image: "python:3.12-slim", build_steps: ["pip install numpy"]}
environment:
  kubernetes:
    code: git
    repository: https://example.org/team/code.git
    revision: main
    shm: 2Gi
    ttl: 1h
    priority_class: low
    pod: {spec: {runtimeClassName: nvidia}}
run: {cmd: python train.py}
"""


def _framework(name: str, replicas: str = "{n_workers: 2}") -> str:
    return PYTORCH.replace("framework: pytorch", f"framework: {name}").replace("{n_workers: 2}", replicas)


CASES = {
    "single": Case(SINGLE),
    "steps": Case(STEPS),
    "distributed": Case(DISTRIBUTED),
    "old": Case(DISTRIBUTED, cluster=OFFLINE._replace(version=(1, 20))),
    "volcano": Case(DISTRIBUTED, cluster=assumed("volcano")),
    "scheduler-plugins": Case(DISTRIBUTED, cluster=assumed("scheduler-plugins")),
    "kueue": Case(DISTRIBUTED, cluster=assumed("kueue"), settings=SETTINGS._replace(queue="team")),
    "tensorflow": Case(TENSORFLOW, "kubeflow"),
    "pytorch": Case(PYTORCH, "kubeflow"),
    "elastic": Case(ELASTIC, "kubeflow"),
    "xgboost": Case(_framework("xgboost"), "kubeflow"),
    "jax": Case(_framework("jax"), "kubeflow"),
    "mpi": Case(MPI, "kubeflow"),
    "horovod": Case(_framework("horovod"), "kubeflow"),
    "mpi-v1": Case(MPI, "kubeflow", assumed("training-operator=1.8,mpi=v1")),
    "mxnet": Case(_framework("mxnet", "{n_workers: 2, n_ps: 1}"), "kubeflow", assumed("training-operator=1.8")),
    "trainer": Case(PYTORCH, "kubeflow", assumed("trainer")),
}


def made_of(case: Case, run_id: str = "a1b2c3d4e5") -> Plan:
    return plan.make(spec.load([("polyaxonfile.yml", case.text.encode())]), run_id)


def rendered(case: Case, run_id: str = "a1b2c3d4e5") -> Job:
    return backends.find(case.backend).render(made_of(case, run_id), ClusterTarget(case.settings, case.cluster))


def objects_of(job: Job) -> list[dict[str, Any]]:
    import json

    found: list[dict[str, Any]] = json.loads(job.files["manifests.json"])
    return found


EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/*/*.yml"))
