"""The plan: a run's replicas and how they find each other. Frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from phalanx.errors import Note
from phalanx.naming import SERVING, member_name
from phalanx.placeholders import OwnValues, Value, is_own
from phalanx.spec.model import (
    Build,
    CollectOptions,
    KubernetesOptions,
    ModelOptions,
    PythonOptions,
    ReplicaSettings,
    Resources,
    SlurmOptions,
)

DEFAULT_PORT = 2222


class Member(NamedTuple):
    """A process of the run, before its resources are known. Most replicas have one process."""

    role: str
    index: int  # type: ignore[assignment] # hides `tuple.index`
    rank: int
    node: int = 0  # its replica, counted over all roles
    local: int = 0  # index of the process in its replica
    local_size: int = 1
    gpus: int = 0  # of its replica
    cross: int = 0  # number of earlier replicas with a process of this local index

    @property
    def name(self) -> str:
        return member_name(self.role, self.index, self.local)

    @property
    def kind(self) -> MemberKind:
        return MemberKind(self.role, self.local, self.local_size, self.gpus)


class MemberKind(NamedTuple):
    """What processes with the same wiring have in common: they differ only in their own numbers."""

    role: str
    local: int = 0
    local_size: int = 1
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """One member of the run, with everything needed to start it.

    `environment` holds its own variables; the run's `shared` comes before it. `defaults` apply only where the machine's
    environment has no such variable. Without `argv` it runs nothing: it is a host for the launcher. A replica
    with several processes appears once per process; the first one holds its resources.
    """

    role: str
    index: int
    rank: int
    settings: ReplicaSettings
    environment: Mapping[str, Value]
    defaults: Mapping[str, Value]
    argv: tuple[Value, ...]
    local: int = 0

    @property
    def name(self) -> str:
        return member_name(self.role, self.index, self.local)

    @property
    def resources(self) -> Resources:
        return self.settings.resources or _NO_RESOURCES


_NO_RESOURCES = Resources()


def template_of(replica: Replica) -> Mapping[str, Value]:
    """The variables of a replica before its own numbers are filled in: one object for all replicas of its kind."""
    return replica.environment.template if isinstance(replica.environment, OwnValues) else replica.environment


def one_of_each(replicas: Iterable[Replica]) -> Iterator[Replica]:
    """The first replica of each kind: the variables of the others differ only in their own numbers."""
    seen: dict[int, Mapping[str, Value]] = {}
    for replica in replicas:
        template = template_of(replica)
        if id(template) not in seen:
            seen[id(template)] = template
            yield replica


def in_common(replicas: Iterable[Replica]) -> dict[str, Value]:
    """The variables that have the same value in all replicas; of a single one, all."""
    listed = list(replicas)
    first = listed[0]
    if len(listed) == 1:
        return dict(first.environment)
    others = [template_of(replica) for replica in one_of_each(listed)]
    return {
        name: value
        for name, value in template_of(first).items()
        if not is_own(value) and all(other.get(name) == value for other in others)
    }


@dataclass(frozen=True, slots=True)
class Plan:
    """`meets` are the roles and replicas whose addresses all others get: agents check that they can be reached
    before anything starts. `service` is a key-value server beside the first replica, with the sizes of its scopes.
    `wiring` is the name of the framework that wired it: MPI if MPI starts the ranks of another framework. `launcher` is
    the prefix of a rank's command if `launch` is `mpirun`. `serving` are the roles that only serve: the run has
    succeeded when all other replicas have.
    """

    run_id: str
    kind: str
    name: str | None
    framework: str | None
    backend: str
    command: str | None
    launch: str
    roles: Mapping[str, int]
    replicas: tuple[Replica, ...]
    shared: Mapping[str, Value]
    totals: Resources
    meets: tuple[str, ...] = ()
    service: Mapping[str, int] | None = None
    wiring: str | None = None
    launcher: tuple[Value, ...] = ()
    serving: tuple[str, ...] = SERVING
    timeout_s: float | None = None
    stall_timeout_s: float | None = None
    max_restarts: int = 0
    hold_s: float | None = None  # how long the allocation is kept after a failure
    notebook: str | None = None  # the page of a notebook's server
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)
    python: PythonOptions = field(default_factory=PythonOptions)
    backend_settings: Mapping[str, Any] = field(default_factory=dict)  # `environment.NAME`, as the backend NAME read it
    build: Build | None = None
    collect: CollectOptions | None = None  # None: the working folder is not watched
    models: tuple[ModelOptions, ...] = ()
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @property
    def setup_steps(self) -> tuple[str, ...]:
        """The steps that prepare the environment of each replica, where no image is built from them. Those of a build
        are its command."""
        return self.build.build_steps if self.build is not None and self.kind != "build" else ()

    @property
    def is_distributed(self) -> bool:
        return len(self.replicas) > 1  # a launcher is never alone

    @property
    def members(self) -> dict[str, list[str]]:
        """The names of the replicas, by role."""
        return {role: [f"{role}-{index}" for index in range(count)] for role, count in self.roles.items()}
