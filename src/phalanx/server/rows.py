"""Records of the store as JSON, with the names that `--json` of the command line has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from phalanx.store import Artifact, Replica, Run, StatusChange, Store, Summary


def _time(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None


def run_row(run: Run) -> dict[str, Any]:
    times = ("created_at", "updated_at", "started_at", "finished_at")
    row = {**run._asdict(), **{name: _time(getattr(run, name)) for name in times}}
    return {**row, "tags": list(run.tags), "params": dict(run.params), "summary": dict(run.summary)}


def waits_for(store: Store, runs: Iterable[Run]) -> dict[str, str]:
    """What runs wait for in the queue of a cluster, in words; of those that do."""
    wanted = [run.id for run in runs if run.status in ("scheduled", "starting", "running")]
    facts = store.facts_of(wanted, "waiting") if wanted else {}
    return {run_id: str(fact["why"]) for run_id, fact in facts.items() if isinstance(fact, dict) and fact.get("why")}


def waiting_rows(store: Store, runs: Sequence[Run]) -> list[dict[str, Any]]:
    waits = waits_for(store, runs)
    return [{**run_row(run), "waits_for": waits.get(run.id)} for run in runs]


def waiting_row(store: Store, run: Run) -> dict[str, Any]:
    return waiting_rows(store, [run])[0]


def replica_row(replica: Replica) -> dict[str, Any]:
    row = replica._asdict()
    row |= {"started_at": _time(replica.started_at), "finished_at": _time(replica.finished_at)}
    return {**row, "index": row.pop("number"), "name": replica.name, "peak": dict(replica.peak)}


def status_row(change: StatusChange) -> dict[str, Any]:
    return {**change._asdict(), "at": change.at.isoformat()}


def artifact_row(artifact: Artifact) -> dict[str, Any]:
    return {**artifact._asdict(), "at": artifact.at.isoformat()}


def summary_rows(summaries: Mapping[str, Summary]) -> dict[str, Any]:
    return {name: summary._asdict() for name, summary in summaries.items()}
