"""The statuses of a run, and the allowed transitions: Polyaxon's, every change with a reason."""

from __future__ import annotations

from enum import StrEnum

from phalanx import store


class Status(StrEnum):
    CREATED = "created"
    RESUMING = "resuming"
    BUILDING = "building"
    SCHEDULED = "scheduled"
    STARTING = "starting"
    RUNNING = "running"
    WARNING = "warning"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"


HELD = "held"  # the first word of the reason of a run whose allocation stays after a failure
_QUEUED = frozenset([Status.CREATED, Status.RESUMING, Status.WARNING])
DONE = frozenset(map(Status, store.DONE))
_BEFORE_BUILDING = frozenset([Status.CREATED, Status.RESUMING, Status.WARNING, Status.UNKNOWN])
_BEFORE_SCHEDULED = _BEFORE_BUILDING | {Status.BUILDING}
_BEFORE_STARTING = _BEFORE_SCHEDULED | {Status.SCHEDULED}
_FOLLOWS: dict[Status, frozenset[Status]] = {
    Status.CREATED: frozenset([Status.BUILDING]),  # what it waited for is built: it is queued
    Status.RESUMING: frozenset(Status) - {Status.RESUMING},  # also set by its place, while it has not ended
    Status.BUILDING: _BEFORE_BUILDING | {Status.SCHEDULED, Status.STARTING},  # also in its job: on a node, or by a pod
    Status.SCHEDULED: _BEFORE_SCHEDULED,
    Status.STARTING: _BEFORE_STARTING - {Status.UNKNOWN},
    Status.RUNNING: _BEFORE_STARTING | {Status.STARTING},
    Status.WARNING: frozenset(Status) - DONE - {Status.WARNING},
    Status.UNKNOWN: frozenset(Status) - DONE - {Status.UNKNOWN},
} | {status: frozenset(Status) - DONE for status in DONE}


def is_queued(status: str, attempt: int) -> bool:
    """Whether a run waits for its next attempt, and no place has it: in the queue, for other runs, or for a build."""
    return status in _QUEUED or (status == Status.BUILDING and attempt == 0)


def may_follow(old: str | None, new: str) -> bool:
    """Whether a run may change from one status to another. A new run starts as created."""
    if old is None:
        return new == Status.CREATED
    return Status(old) in _FOLLOWS[Status(new)]
