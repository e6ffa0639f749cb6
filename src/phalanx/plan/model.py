"""The plan: a run's replicas and how they find each other. Frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from phalanx.errors import Note
from phalanx.placeholders import Value
from phalanx.spec.model import ReplicaSettings, Resources

DEFAULT_PORT = 2222


@dataclass(frozen=True, slots=True)
class Member:
    """A seat in the run, before anything is known of what it asks for."""

    role: str
    index: int
    rank: int

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True)
class Replica:
    """One member of the run, with everything needed to start it.

    `environment` is its own part; the run's `shared` comes before it. `defaults` apply only where the machine's
    environment has no such variable. Without `argv` it runs nothing itself: it is a host for the launcher.
    """

    role: str
    index: int
    rank: int
    settings: ReplicaSettings
    environment: Mapping[str, Value]
    defaults: Mapping[str, str]
    argv: tuple[Value, ...]

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def resources(self) -> Resources:
        return self.settings.resources or _NO_RESOURCES


_NO_RESOURCES = Resources()


@dataclass(frozen=True, slots=True)
class Plan:
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
    timeout_s: float | None = None
    max_restarts: int = 0
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @property
    def is_distributed(self) -> bool:
        return len(self.replicas) > 1

    @property
    def members(self) -> dict[str, list[str]]:
        """The names of the replicas, by role."""
        return {role: [f"{role}-{index}" for index in range(count)] for role, count in self.roles.items()}
