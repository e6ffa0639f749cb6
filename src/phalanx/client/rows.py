"""Converts rows of the REST API to the records of `phalanx.open()`. Fields that an older server lacks are empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from phalanx.store.model_index import Model, ModelEvent, ModelVersion
from phalanx.store.records import Artifact, MetricRange, ReplicaRecord, Run, StatusChange, Summary

Row = Mapping[str, Any]
Record = TypeVar("Record")
_EPOCH = datetime.fromtimestamp(0, UTC)
# The fields that are times, and their values when a row has none.
_TIMES = {"at": _EPOCH, "created_at": _EPOCH, "updated_at": _EPOCH, "started_at": None, "finished_at": None}


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


def record(kind: Callable[..., Record], row: Row, **own: Any) -> Record:
    """A record of the fields that the row has by the same names, and of `own` ones."""
    fields = {name: row.get(name) for name in kind._fields}  # type: ignore[attr-defined] # a named tuple
    times = {name: time_of(fields[name]) or otherwise for name, otherwise in _TIMES.items() if name in fields}
    return kind(**{**fields, **times, **own})


def run_of(row: Row) -> Run:
    best = {
        name: MetricRange(number_of(one.get("min")), number_of(one.get("max")))
        for name, one in _dict(row, "best").items()
    }
    tags = tuple(row.get("tags") or ())
    inner = {"params": _dict(row, "params"), "summary": _numbers(row, "summary"), "best": best}
    return record(Run, row, tags=tags, archived=bool(row.get("archived")), **inner)


def _dict(row: Row, name: str) -> dict[str, Any]:
    return dict(row.get(name) or {})


def _numbers(row: Row, name: str) -> dict[str, float]:
    return {key: float(value) for key, value in (row.get(name) or {}).items() if value is not None}


def details_of(row: Row) -> Details:
    run = run_of(row)
    return Details(
        run,
        _dict(row, "labels"),
        _dict(row, "facts"),
        {name: summary_of(one) for name, one in (row.get("summaries") or {}).items()},
        [status_of(one, run.id) for one in row.get("statuses") or ()],
        [replica_of(one, run.id, run.attempt) for one in row.get("replicas") or ()],
        [artifact_of(one, run.id) for one in row.get("artifacts") or ()],
        row.get("waits_for"),
    )


def status_of(row: Row, run_id: str) -> StatusChange:
    return record(StatusChange, row, run_id=run_id, reason=str(row.get("reason") or ""))


def replica_of(row: Row, run_id: str, attempt: int) -> ReplicaRecord:
    return record(
        ReplicaRecord,
        row,
        run_id=run_id,
        attempt=int(row.get("attempt") or attempt),
        number=int(row["index"]),
        reason=str(row.get("reason") or ""),
        peak=_dict(row, "peak"),
        local=int(row.get("local") or 0),
    )


def artifact_of(row: Row, run_id: str) -> Artifact:
    return record(Artifact, row, run_id=str(row.get("run_id") or run_id))


def summary_of(row: Row) -> Summary:
    """The summary of a metric; without points, only its last value is known."""
    low, high, last = (number_of(row.get(name)) for name in ("min", "max", "last"))
    return record(Summary, row, last=float("nan") if last is None else last, min=low, max=high, at=row.get("at"))


def model_of(row: Row) -> Model:
    versions = row.get("versions") or 0
    return record(
        Model,
        row,
        description=str(row.get("description") or ""),
        labels=_dict(row, "labels"),
        versions=len(versions) if isinstance(versions, list) else int(versions),
        aliases=_dict(row, "aliases"),
    )


def version_of(row: Row) -> ModelVersion:
    return record(
        ModelVersion,
        row,
        metrics=_numbers(row, "metrics"),
        lineage=_dict(row, "lineage"),
        labels=_dict(row, "labels"),
        description=str(row.get("description") or ""),
        aliases=tuple(row.get("aliases") or ()),
    )


def event_of(row: Row) -> ModelEvent:
    return record(ModelEvent, row)
