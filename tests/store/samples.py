"""Runs, statuses and replicas for the tests of the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from phalanx.store import ReplicaRecord, Run, StatusChange

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

HOSTILE = [
    'it\'s "quoted" `so` \\ and \\\\',
    "'; DROP TABLE runs; --",
    "lines\nand\r\ttabs",
    "100%_sure %s %(x)s ? :name {} {0}",
    "emoji 🐘 and ütf 漢字 \u202e",
    "",
    " ",
    "a,b|c:d~e<f>g=h..i",
    "x" * 1_000_000,
]


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def run(run_id: str = "a1b2c3", minutes: float = 0, **changes: Any) -> Run:
    at = after(minutes)
    return Run(
        id=run_id,
        project="vision",
        kind="experiment",
        name=None,
        description=None,
        framework=None,
        backend="local",
        user="ann",
        status="created",
        reason="",
        attempt=1,
        priority=0,
        created_at=at,
        updated_at=at,
        started_at=None,
        finished_at=None,
        original=None,
        cloning=None,
        group=None,
        commit=None,
        tags=(),
        params={},
        summary={},
    )._replace(**changes)


def status(number: int, name: str, minutes: float = 0, attempt: int = 1, run_id: str = "a1b2c3") -> StatusChange:
    return StatusChange(run_id, number, attempt, name, f"because of {name}", after(minutes))


def replica(number: int = 0, attempt: int = 1, run_id: str = "a1b2c3", **changes: Any) -> ReplicaRecord:
    peak: Mapping[str, float] = {"memory_mib": 31.8}
    return ReplicaRecord(
        run_id=run_id,
        attempt=attempt,
        role="worker",
        number=number,
        rank=number + 1,
        status="running",
        reason="",
        host="node-1",
        pid=4242,
        cause=None,
        code=None,
        signal=None,
        started_at=NOON,
        finished_at=None,
        peak=peak,
    )._replace(**changes)
