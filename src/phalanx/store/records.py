"""The records of the store, as frozen values. Their annotations are no strings, as in `spec/model.py`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx.naming import FINAL_STATUSES, member_name

DONE = FINAL_STATUSES
STARTED = ("starting", "running")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class MetricRange(NamedTuple):
    """The smallest and the largest finite value of a metric; None when there is none."""

    min: float | None
    max: float | None


class Run(NamedTuple):
    """One execution of an experiment or job. `summary` has the last value of each metric, `best` its minimum and
    maximum. `cpus`, `memory_mib` and `gpus` are requested by all replicas together. None:
    unknown, or not requested."""

    id: str
    project: str
    kind: str
    name: str | None
    description: str | None
    framework: str | None
    backend: str
    user: str
    status: str
    reason: str
    attempt: int
    priority: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    original: str | None
    cloning: str | None
    group: str | None
    commit: str | None
    tags: tuple[str, ...]
    params: Mapping[str, Any]
    summary: Mapping[str, float]
    best: Mapping[str, MetricRange] = MappingProxyType({})
    archived: bool = False
    replica_count: int | None = None
    cpus: float | None = None
    memory_mib: float | None = None
    gpus: float | None = None

    @property
    def is_done(self) -> bool:
        return self.status in DONE


class StatusChange(NamedTuple):
    """One status change of a run. Numbers count 1, 2, 3… per run."""

    run_id: str
    number: int
    attempt: int
    status: str
    reason: str
    at: datetime


class ReplicaRecord(NamedTuple):
    """One process of a run in one attempt: most replicas have one. `number` is the replica's index within the role,
    `local` that of the process within the replica."""

    run_id: str
    attempt: int
    role: str
    number: int
    rank: int
    status: str
    reason: str
    host: str | None
    pid: int | None
    cause: str | None
    code: int | None
    signal: int | None
    started_at: datetime | None
    finished_at: datetime | None
    peak: Mapping[str, float]
    local: int = 0

    @property
    def name(self) -> str:
        return member_name(self.role, self.number, self.local)


class Artifact(NamedTuple):
    """A file or folder that a run kept on purpose. The path is relative to the run's folder."""

    run_id: str
    path: str
    type: str
    name: str
    size: int
    digest: str | None
    at: datetime


class Summary(NamedTuple):
    """A metric in lists; `series/summaries.py` has the rule."""

    last: float
    min: float | None
    max: float | None
    count: int  # type: ignore[assignment] # the usual word, though tuples have a method of that name
    step: int  # of the last point
    at: float  # when the last point was logged


def microseconds(time: datetime) -> int:
    """Exact microseconds since the epoch. A time without a zone is a bug in the caller and raises TypeError."""
    return (time - _EPOCH) // _MICROSECOND


def utc(count: int) -> datetime:
    return _EPOCH + timedelta(microseconds=count)
