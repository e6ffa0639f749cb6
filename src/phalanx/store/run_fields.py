"""The value of a field of a run, by the name that queries, columns and sort orders use."""

from __future__ import annotations

from typing import Any

from phalanx.errors import CallError
from phalanx.store.metric_direction import best_of
from phalanx.store.query import NAMED_FIELDS, RESOURCES, TEXTS, TIMES, order
from phalanx.store.records import Run

COLUMNS = (*TEXTS, *TIMES, "attempt", "priority", *RESOURCES, "tags", "archived", "reason", "duration_s")


def check_column(field: str) -> None:
    """Raises CallError for a field that runs do not have."""
    if "." in field:
        order(field)
    elif field not in COLUMNS:
        raise CallError(f"there is no column `{field[:100]}`: use one of {', '.join((*COLUMNS, *NAMED_FIELDS))}")


def value_of(run: Run, field: str) -> Any:
    """None when the run has no such value. The field is valid: see `check_column`."""
    head, _, name = field.partition(".")
    if not name:
        return _own(run, field)
    name = name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name
    if head == "best":
        head = best_of(name)
    if head in ("min", "max"):
        return getattr(run.best[name], head) if name in run.best else None
    return (run.params if head in ("params", "declarations") else run.summary).get(name)


def _own(run: Run, field: str) -> Any:
    if field == "tags":
        return ", ".join(run.tags)
    if field == "duration_s":
        return (run.finished_at - run.started_at).total_seconds() if run.started_at and run.finished_at else None
    return getattr(run, RESOURCES.get(field, field))
