"""A replica's database row, from its state and its end."""

from __future__ import annotations

from datetime import UTC, datetime

from phalanx.ends import status_of
from phalanx.home.attempts import ReplicaPhase, ReplicaState
from phalanx.insight.autopsy import FirstFailure
from phalanx.store import ReplicaRecord, Run
from phalanx.stored_plan import PlannedReplica

_STATUSES = {ReplicaPhase.ABSENT: "starting", ReplicaPhase.RUNNING: "running"}


def replica_record(
    run: Run,
    replica: PlannedReplica,
    observed: ReplicaState,
    failed: FirstFailure | None = None,
    host: str | None = None,
) -> ReplicaRecord:
    """The row of a replica; for one that failed as a consequence, with that reason. `host`: while it runs."""
    end = observed.end
    taken = failed.others.get(replica.name) if failed is not None else None
    record = ReplicaRecord(
        run_id=run.id,
        attempt=run.attempt,
        role=replica.role,
        number=replica.number,
        local=replica.local,
        rank=replica.rank,
        status=_STATUSES.get(observed.state, "failed"),
        reason=taken or "",
        host=host if observed.state is ReplicaPhase.RUNNING else None,
        pid=observed.pid,
        cause=None,
        code=None,
        signal=None,
        started_at=None,
        finished_at=None,
        peak={},
    )
    if end is None:
        return record
    return record._replace(
        status=status_of(end.cause),
        reason=taken or end.message,
        host=end.host or host,
        cause=end.cause.value,
        code=end.code,
        signal=end.signal,
        started_at=_time(end.started_at),
        finished_at=_time(end.ended_at),
        peak=end.peak,
    )


def _time(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at else None
