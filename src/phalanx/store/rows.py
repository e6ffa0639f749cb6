"""Records as JSON, with the same field names in the command line's `--json` and in REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from phalanx.store.records import ReplicaRecord, Run, StatusChange


def _time(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None


def run_row(run: Run) -> dict[str, Any]:
    times = ("created_at", "updated_at", "started_at", "finished_at")
    row = {**run._asdict(), **{name: _time(getattr(run, name)) for name in times}}
    best = {metric: found._asdict() for metric, found in run.best.items()}
    return {**row, "tags": list(run.tags), "params": dict(run.params), "summary": dict(run.summary), "best": best}


def replica_row(replica: ReplicaRecord) -> dict[str, Any]:
    row = replica._asdict()
    row |= {"started_at": _time(replica.started_at), "finished_at": _time(replica.finished_at)}
    return {**row, "index": replica.number, "name": replica.name, "peak": dict(replica.peak)}


def status_row(change: StatusChange) -> dict[str, Any]:
    return {**change._asdict(), "at": change.at.isoformat()}
