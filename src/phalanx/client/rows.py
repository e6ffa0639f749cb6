"""Converts rows of the REST API to the records of `phalanx.open()`. Fields that an older server lacks are empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from phalanx.store.model_index import Model, ModelEvent, ModelVersion
from phalanx.store.records import Artifact, ReplicaRecord, Run, StatusChange
from phalanx.store.series.points import Summary

Row = Mapping[str, Any]
_EPOCH = datetime.fromtimestamp(0, UTC)


class Details(NamedTuple):
    """A run with all its details."""

    run: Run
    labels: Mapping[str, str]
    facts: Mapping[str, Any]
    summaries: Mapping[str, Summary]
    statuses: Sequence[StatusChange]
    replicas: Sequence[ReplicaRecord]
    artifacts: Sequence[Artifact]
    waits_for: str | None


def time_of(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


def number_of(value: Any) -> float | None:
    """A number; NaN and infinities, which JSON lacks, arrive as text."""
    return None if value is None else float(value)


def run_of(row: Row) -> Run:
    fields = {name: row.get(name) for name in Run._fields}
    return Run(
        **{
            **fields,
            "created_at": time_of(row.get("created_at")) or _EPOCH,
            "updated_at": time_of(row.get("updated_at")) or _EPOCH,
            "started_at": time_of(row.get("started_at")),
            "finished_at": time_of(row.get("finished_at")),
            "tags": tuple(row.get("tags") or ()),
            "params": dict(row.get("params") or {}),
            "summary": {name: float(value) for name, value in (row.get("summary") or {}).items() if value is not None},
        }  # type: ignore[arg-type] # a row of the server has the fields of a run
    )


def details_of(row: Row) -> Details:
    run = run_of(row)
    return Details(
        run,
        dict(row.get("labels") or {}),
        dict(row.get("facts") or {}),
        {name: summary_of(one) for name, one in (row.get("summaries") or {}).items()},
        [status_of(one, run.id) for one in row.get("statuses") or ()],
        [replica_of(one, run.id, run.attempt) for one in row.get("replicas") or ()],
        [artifact_of(one, run.id) for one in row.get("artifacts") or ()],
        row.get("waits_for"),
    )


def status_of(row: Row, run_id: str) -> StatusChange:
    return StatusChange(
        run_id,
        int(row["number"]),
        int(row["attempt"]),
        str(row["status"]),
        str(row.get("reason") or ""),
        time_of(row["at"]) or _EPOCH,
    )


def replica_of(row: Row, run_id: str, attempt: int) -> ReplicaRecord:
    return ReplicaRecord(
        run_id,
        int(row.get("attempt") or attempt),
        str(row["role"]),
        int(row["index"]),
        int(row["rank"]),
        str(row["status"]),
        str(row.get("reason") or ""),
        row.get("host"),
        row.get("pid"),
        row.get("cause"),
        row.get("code"),
        row.get("signal"),
        time_of(row.get("started_at")),
        time_of(row.get("finished_at")),
        dict(row.get("peak") or {}),
        int(row.get("local") or 0),
    )


def artifact_of(row: Row, run_id: str) -> Artifact:
    return Artifact(
        str(row.get("run_id") or run_id),
        str(row["path"]),
        str(row["type"]),
        str(row["name"]),
        int(row["size"]),
        row.get("digest"),
        time_of(row.get("at")) or _EPOCH,
    )


def summary_of(row: Row) -> Summary:
    """The summary of a metric; without points, only its last value is known."""
    last = number_of(row.get("last"))
    return Summary(
        float("nan") if last is None else last,
        number_of(row.get("min")),
        number_of(row.get("max")),
        row.get("count"),  # type: ignore[arg-type] # None where the store has None
        row.get("step"),  # type: ignore[arg-type]
        row.get("at"),  # type: ignore[arg-type]
    )


def model_of(row: Row) -> Model:
    return Model(
        str(row["name"]),
        str(row.get("description") or ""),
        dict(row.get("labels") or {}),
        time_of(row.get("created_at")) or _EPOCH,
        time_of(row.get("updated_at")) or _EPOCH,
        row.get("latest"),
        int(row.get("versions") or 0) if not isinstance(row.get("versions"), list) else len(row["versions"]),
        dict(row.get("aliases") or {}),
    )


def version_of(row: Row) -> ModelVersion:
    return ModelVersion(
        **{
            **{name: row.get(name) for name in ModelVersion._fields},
            "created_at": time_of(row.get("created_at")) or _EPOCH,
            "updated_at": time_of(row.get("updated_at")) or _EPOCH,
            "metrics": {name: float(value) for name, value in (row.get("metrics") or {}).items() if value is not None},
            "lineage": dict(row.get("lineage") or {}),
            "labels": dict(row.get("labels") or {}),
            "description": str(row.get("description") or ""),
            "aliases": tuple(row.get("aliases") or ()),
        }  # type: ignore[arg-type] # see `run_of`
    )


def event_of(row: Row) -> ModelEvent:
    fields = {name: row.get(name) for name in ModelEvent._fields}
    return ModelEvent(**{**fields, "at": time_of(row.get("at")) or _EPOCH})  # type: ignore[arg-type]
