"""The spec: the user's file, validated and normalised. Frozen values, the same for every dialect.

The parts are named tuples rather than dataclasses: defining the class costs a seventh of the time, which every call of
the command line pays. For the same reason their annotations are no strings (`from __future__ import annotations`):
`NamedTuple` would compile each of them again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx.errors import Location, Note
from phalanx.spec.scalars import plain_scalar
from phalanx.tune.space import Dimension

EMPTY: Mapping[Any, Any] = MappingProxyType({})


def _empty() -> Mapping[Any, Any]:
    return EMPTY


class Kind(StrEnum):
    EXPERIMENT = "experiment"
    GROUP = "group"
    JOB = "job"
    BUILD = "build"
    NOTEBOOK = "notebook"
    TENSORBOARD = "tensorboard"
    PIPELINE = "pipeline"


def freeze(value: Any) -> Any:
    """Plain data as immutable values."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any, scalar: Callable[[Any], Any] = plain_scalar) -> Any:
    """Frozen data as plain dicts and lists, for JSON."""
    if isinstance(value, Mapping):
        return {key: thaw(item, scalar) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item, scalar) for item in value]
    return scalar(value)


def thaw_written(value: Any) -> Any:
    """Frozen data as plain dicts and lists whose scalars keep their characters, for YAML."""
    return thaw(value, lambda scalar: scalar)


class Amount(NamedTuple):
    """How much of one resource: CPUs, MiB of memory, or devices."""

    requests: float | None = None
    limits: float | None = None


class Resources(NamedTuple):
    cpu: Amount | None = None
    memory: Amount | None = None
    gpu: Amount | None = None
    tpu: Amount | None = None


RESOURCE_NAMES = ("cpu", "memory", "gpu", "tpu")
MOST_REPLICAS = 100_000  # also of the processes of all of them


class ReplicaSettings(NamedTuple):
    """What one replica, or all replicas of a role, request from the backend. None: not set."""

    resources: Resources | None = None
    node_selector: Mapping[str, str] | None = None
    affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Mapping[str, Any], ...] | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    env_vars: tuple[tuple[str, str], ...] | None = None
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] | None = None
    secret_refs: tuple[str, ...] | None = None
    config_map_refs: tuple[str, ...] | None = None
    data_refs: tuple[str, ...] | None = None
    artifact_refs: tuple[str, ...] | None = None
    max_restarts: int | None = None


class Replicas(NamedTuple):
    """The replicas of a distributed run besides its master."""

    n_workers: int = 0
    n_ps: int = 0
    default_worker: ReplicaSettings | None = None
    default_ps: ReplicaSettings | None = None
    worker: Mapping[int, ReplicaSettings] = EMPTY
    ps: Mapping[int, ReplicaSettings] = EMPTY
    delay_workers_by_global_step: bool = False
    master_task: str | None = None
    launcher: str | None = None
    processes: int | None = None


class OutputsRefs(NamedTuple):
    """Earlier runs whose outputs this one reads."""

    jobs: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()


class KeepOptions(NamedTuple):
    """Which checkpoints stay when a run has ended. `path` has `{step}` where the step of a checkpoint is."""

    path: str
    last: int = 1
    best: int | None = None
    metric: str | None = None
    is_largest_best: bool | None = None  # None: judged by the name of the metric


class CollectOptions(NamedTuple):
    """Files of the working folder that become outputs. Without patterns: those that look like results."""

    collect: tuple[str, ...] | None = None
    max_mib: float = 2048.0
    max_files: int = 1000
    keep: KeepOptions | None = None


class ModelOptions(NamedTuple):
    """A file among the outputs that becomes a version of a model."""

    name: str
    path: str
    metric: str | None = None
    is_largest_best: bool = True


class NotifyEvent(StrEnum):
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    STALLED = "stalled"  # an attempt was ended because it did nothing any more
    WAITING = "waiting"  # in a queue, for longer than the rule allows


ENDS_TOLD = (NotifyEvent.FAILED, NotifyEvent.SUCCEEDED, NotifyEvent.STOPPED)  # unless the rule says otherwise


class NotifyRule(NamedTuple):
    """Who is told of what happens to a run. `by`: Slurm sends the mail itself."""

    channel: str  # command, mail or webhook
    target: tuple[str, ...]
    on: tuple[NotifyEvent, ...] = ENDS_TOLD
    waiting_s: float | None = None
    trials: bool = False
    by: str | None = None


class SlurmOptions(NamedTuple):
    """Slurm options of the run. None: not set."""

    site: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gpu_type: str | None = None
    layout: str | None = None
    replicas_per_node: int | None = None
    segment_s: float | None = None
    checkpoint_s: float | None = None
    checkpoint_signal: str | None = None
    mpi: str | None = None
    directives: tuple[tuple[str, str], ...] = ()
    batch: tuple[tuple[str, str], ...] | None = None


class KubernetesOptions(NamedTuple):
    """Kubernetes options of the run. None: not set. `pod` is merged over the template of every pod."""

    queue: str | None = None
    gang: str | None = None
    priority_class: str | None = None
    scheduler: str | None = None
    code: str | None = None
    code_claim: str | None = None
    code_path: str | None = None
    repository: str | None = None
    revision: str | None = None
    shm_mib: float | None = None
    ttl_s: float | None = None
    peers_s: float | None = None
    give_up_s: float | None = None
    node_timeout_s: float | None = None
    restart_policy: str | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    runtime: str | None = None
    pod: Mapping[str, Any] = EMPTY


class PythonOptions(NamedTuple):
    """The Python that the run uses, on machines without containers."""

    modules: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    wheelhouse: tuple[str, ...] = ()
    no_index: bool = False
    build_on: str | None = None
    venv: str | None = None
    conda: str | None = None
    image: str | None = None


class Environment(NamedTuple):
    """The environment of the run. `settings` apply to the master, and to all replicas where they share them."""

    settings: ReplicaSettings = ReplicaSettings()
    outputs: OutputsRefs | None = None
    timeout_s: float | None = None
    stall_timeout_s: float | None = None
    hold_s: float | None = None
    idle_s: float | None = None  # of a notebook
    replicas: Replicas | None = None
    slurm: SlurmOptions = SlurmOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()
    python: PythonOptions = PythonOptions()
    backends: Mapping[str, Any] = EMPTY  # sections of backends of other packages, by name


class Build(NamedTuple):
    image: str | None = None
    dockerfile: str | None = None
    ref: str | None = None
    context: str | None = None
    build_steps: tuple[str, ...] = ()
    env_vars: tuple[tuple[str, str], ...] = ()
    lang_env: str | None = None
    commit: str | None = None
    branch: str | None = None
    nocache: bool = False
    backend: str | None = None
    environment: Environment | None = None  # of the build itself, where one runs before the run
    to: str | None = None  # of `kind: build`: the image to make; None: a virtual environment


class Logging(NamedTuple):
    level: str = "INFO"
    formatter: str | None = None


class Variable(NamedTuple):
    """One declared input or output."""

    name: str
    type: str | None = None
    description: str | None = None
    default: Any = None
    is_optional: bool = False
    is_list: bool = False
    is_flag: bool = False
    options: tuple[Any, ...] | None = None


class Search(NamedTuple):
    """How the matrix of a group is searched."""

    algorithm: str
    matrix: tuple[Dimension, ...]
    concurrency: int = 1
    seed: int | None = None
    n_experiments: int | None = None
    settings: Mapping[str, Any] = EMPTY
    early_stopping: tuple[Mapping[str, Any], ...] = ()
    metric: Mapping[str, Any] | None = None
    max_failed: int | None = None
    budget: Mapping[str, Any] | None = None
    warm_start: tuple[str, ...] = ()
    reuse: bool = False
    slurm: Mapping[str, Any] = EMPTY
    repeat: int | None = None

    @property
    def repeats(self) -> int:
        """Runs of each point."""
        return self.repeat or 1

    @property
    def size(self) -> int | None:
        """Number of experiments; None when it is not known in advance."""
        if self.algorithm == "bo":
            return int(self.settings["n_initial_trials"]) + int(self.settings["n_iterations"])
        if self.algorithm == "hyperband":
            return None
        if self.n_experiments is None or self.space is None:
            return self.n_experiments or self.space
        return min(self.n_experiments, self.space)

    @property
    def space(self) -> int | None:
        """Number of points in the matrix; None when a distribution makes it infinite."""
        size = 1
        for dimension in self.matrix:
            if dimension.values is None:
                return None
            size *= len(dimension.values)
        return size


class OutputReference(NamedTuple):
    """A param whose value is an output of another op."""

    param: str
    op: str
    output: str


class Operation(NamedTuple):
    """One step of a pipeline. `spec` is its rendered template; None for a template outside the file. `references`: its
    params that are outputs of other ops."""

    name: str
    template: Mapping[str, str]
    params: Mapping[str, Any] = EMPTY
    dependencies: tuple[str, ...] = ()
    trigger: str = "all_succeeded"
    settings: Mapping[str, Any] = EMPTY
    spec: "Spec | None" = None
    references: tuple[OutputReference, ...] = ()

    @property
    def upstream(self) -> tuple[str, ...]:
        """The ops that its trigger is about: its dependencies, and those whose outputs it reads."""
        return tuple(dict.fromkeys([*self.dependencies, *(reference.op for reference in self.references)]))

    @property
    def conditions(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.settings.get("conditions", ()))

    @property
    def when(self) -> str | None:
        """The expression of its params that must be true for it to run."""
        return self.settings.get("when")

    @property
    def awaited(self) -> tuple[str, ...]:
        """The ops that must have ended before it is decided whether it runs."""
        return tuple(dict.fromkeys([*self.upstream, *(condition["op"] for condition in self.conditions)]))


class Pipeline(NamedTuple):
    ops: tuple[Operation, ...]
    schedule: Mapping[str, Any] | None = None
    concurrency: int | None = None
    execute_at: str | None = None
    timeout_s: float | None = None
    reuse: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """One run, or one group or pipeline of runs, as described by the file.

    For a group the fields are those of its first suggestion, so that everything is checked before any run.
    `document` is the normalised file with unrendered templates; each suggestion is created from it. Its scalars keep
    their characters; `thaw` removes them.
    """

    kind: Kind
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    logging: Logging = field(default_factory=Logging)
    framework: str | None = None
    backend: str | None = None
    params: Mapping[str, Any] = field(default_factory=_empty)
    inputs: tuple[Variable, ...] = ()
    outputs: tuple[Variable, ...] = ()
    collect: CollectOptions = field(default_factory=CollectOptions)
    models: tuple[ModelOptions, ...] = ()
    notify: tuple[NotifyRule, ...] = ()
    environment: Environment = field(default_factory=Environment)
    build: Build | None = None
    command: str | None = None
    search: Search | None = None
    pipeline: Pipeline | None = None
    document: Mapping[str, Any] = field(default_factory=_empty, compare=False, repr=False)
    notes: tuple[Note, ...] = field(default=(), compare=False)
    places: Mapping[str, Location] = field(default_factory=_empty, compare=False, repr=False)

    @property
    def file(self) -> str:
        """The file it was read from; the last one if there were several."""
        return self.places[""].file if "" in self.places else "file"
