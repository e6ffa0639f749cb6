"""The target of a run on Kubernetes: the settings of the user or site, and what the cluster offers. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

DOMAIN = "phalanx.dev"
RUN, ATTEMPT, ROLE = f"{DOMAIN}/run", f"{DOMAIN}/attempt", f"{DOMAIN}/role"  # labels
LOST_NODE_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
NAME, PROJECT, MEMBERS = f"{DOMAIN}/name", f"{DOMAIN}/project", f"{DOMAIN}/members"  # annotations
PORT = 2222
JOB_AT, AGENT_AT, BUNDLE_AT = "/phalanx/job", "/phalanx/agent", "/phalanx/bundle"  # mount paths of the payload in pods
RUN_AT, CODE_AT, HOME_AT = "/phalanx/run", "/phalanx/code", "/phalanx/home"
NOTHING: Mapping[str, Any] = MappingProxyType({})


class DataVolume(NamedTuple):
    """The location of named data or outputs: a claim, a folder of the nodes, or any Kubernetes volume."""

    claim: str | None = None
    host_path: str | None = None
    volume: Mapping[str, Any] | None = None
    path: str = ""  # inside it
    is_read_only: bool = False


class Settings(NamedTuple):
    """`<home>/kubernetes.yml` and the command-line options. None: kubectl's default, or unset."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    image: str = "python:3.12-slim"  # for files without an image
    git_image: str = "alpine/git"
    devices: Mapping[str, str] = MappingProxyType({"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"})
    stores: Mapping[str, DataVolume] = NOTHING  # by the names of data_refs and artifact_refs
    home_claim: str | None = None  # a volume that pods and this home share: then nothing is uploaded
    home_path: str = ""  # the path of this home inside that claim
    server: str | None = None  # the address at which pods reach the server of this home
    queue: str | None = None  # of Kueue
    gang: str | None = None  # kueue, volcano, scheduler-plugins, none; None: any that is installed
    registry: str | None = None  # for images that are built: registry/name
    registry_secret: str | None = None
    builder: str = "buildkit"  # or kaniko
    give_up: float | None = None  # seconds until a replica that cannot start without a fix has failed
    pod: Mapping[str, Any] = NOTHING  # merged over every pod


class Cluster(NamedTuple):
    """What a cluster offers. `kinds`: kinds of jobs by name, with the served API versions, the best first.
    `is_assumed`: the cluster was not asked."""

    version: tuple[int, int] = (1, 34)
    kinds: Mapping[str, tuple[str, ...]] = NOTHING  # "TFJob": ("kubeflow.org/v1",)
    gang: str | None = None  # kueue, volcano, scheduler-plugins
    queues: tuple[str, ...] = ()  # LocalQueues of Kueue in the namespace
    runtimes: tuple[str, ...] = ()  # ClusterTrainingRuntimes of Trainer v2
    is_assumed: bool = True
    own_runtimes: tuple[str, ...] = ()  # TrainingRuntimes of the namespace
    queues_all: bool = False  # Kueue also manages Jobs without a queue
    queues_pods: bool = True  # and pod groups
    pod_security: str | None = None  # the pod security level of the namespace, if visible

    @property
    def has_indexed_jobs(self) -> bool:
        return self.version >= (1, 24)


class ClusterTarget(NamedTuple):
    settings: Settings = Settings()
    cluster: Cluster = Cluster()
