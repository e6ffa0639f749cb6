"""A replica's database row, from its state and its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from phalanx.home.attempts import ReplicaState
from phalanx.insight.autopsy import FirstFailure
from phalanx.naming import replica_name
from phalanx.store import ReplicaRecord, Run


def replica_record(
    run: Run, replica: Mapping[str, Any], sight: ReplicaState, failed: FirstFailure | None = None
) -> ReplicaRecord:
    """The row of a replica; for one that failed as a consequence, with that reason."""
    end = sight.end or {}
    taken = failed.others.get(replica_name(replica)) if failed is not None else None
    status = {"absent": "starting", "running": "running"}.get(sight.state)
    if status is None:
        status = {"finished": "succeeded", "stopped": "stopped", "segment": "stopped"}.get(
            end.get("cause", ""), "failed"
        )
    started, ended = end.get("started_at"), end.get("ended_at")
    return ReplicaRecord(
        run_id=run.id,
        attempt=run.attempt,
        role=replica["role"],
        number=replica["index"],
        local=replica.get("local", 0),
        rank=replica["rank"],
        status=status,
        reason=taken or end.get("message", ""),
        host=end.get("host"),
        pid=sight.pid,
        cause=end.get("cause"),
        code=end.get("code"),
        signal=end.get("signal"),
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
        finished_at=datetime.fromtimestamp(ended, UTC) if ended else None,
        peak=end.get("peak", {}),
    )
