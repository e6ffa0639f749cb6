"""Search for runs as MLflow does: its filters and sort orders as conditions of the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.server.labels import DELETED
from phalanx.server.mlflow.errors import MlflowError, truncated
from phalanx.server.mlflow.filters import Condition, Sorting, holds
from phalanx.server.mlflow.statuses import OURS
from phalanx.store import Run, Store
from phalanx.store.conditions import Comparison, FieldKind, Operator, Ordering, RunField

NAMED = {"mlflow.runName": "name", "mlflow.note.content": "description"}  # tags that are columns in our store
MOST_PROJECTS = 500

_STARTED = RunField(FieldKind.TIME, "started_or_created")
_ID = RunField(FieldKind.COLUMN, "id")
_STATUS = RunField(FieldKind.COLUMN, "status")
_ATTRIBUTES = {
    **dict.fromkeys(("start_time", "created", "Created"), _STARTED),
    "end_time": RunField(FieldKind.TIME, "finished_at"),
    **dict.fromkeys(("run_id", "run_uuid"), _ID),
    **dict.fromkeys(("run_name", "run name", "Run name", "Run Name"), RunField(FieldKind.COLUMN, "name")),
    "user_id": RunField(FieldKind.COLUMN, "user"),
    "artifact_uri": RunField(FieldKind.COLUMN, "id", "mlflow-artifacts:/", "/artifacts"),
    "status": _STATUS,
}
_ROWS = {"metric": FieldKind.METRIC, "param": FieldKind.PARAM, "tag": FieldKind.LABEL}
_NUMERIC = ("=", "!=", "<", "<=", ">", ">=")
_TEXTUAL = ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN")
_PRESENCE = ("IS NULL", "IS NOT NULL")


def search(  # noqa: PLR0913 - the parts of a search
    store: Store,
    projects: Sequence[str],
    wanted: Sequence[Condition],
    order: Sequence[Sorting],
    *,
    limit: int,
    offset: int = 0,
    stage: str = "ACTIVE_ONLY",
) -> list[Run]:
    """A page of runs, newest first among equals. Raises MlflowError for fields that MLflow does not have either."""
    if len(projects) > MOST_PROJECTS:
        raise MlflowError(f"at most {MOST_PROJECTS} experiments can be searched at once")
    comparisons = [
        Comparison(RunField(FieldKind.COLUMN, "project"), Operator.IN, projects),
        *_stage(stage),
        *map(_comparison, wanted),
    ]
    orderings = [*map(_ordering, order), Ordering(_STARTED, descending=True), Ordering(_ID)]
    return store.search(comparisons, orderings, limit=limit, offset=offset)


def _stage(stage: str) -> Iterable[Comparison]:
    if stage != "ALL":
        operator = Operator.IS_NOT_NULL if stage == "DELETED_ONLY" else Operator.IS_NULL
        yield Comparison(RunField(FieldKind.LABEL, DELETED), operator)


def _field(entity: str, key: str) -> RunField | None:
    if entity == "tag" and key in NAMED:
        return RunField(FieldKind.COLUMN, NAMED[key])
    if entity in _ROWS:
        return RunField(_ROWS[entity], key)
    return _ATTRIBUTES.get(key) if entity == "attribute" else None


def _comparison(condition: Condition) -> Comparison:
    if condition.entity == "dataset":
        raise MlflowError("searching by datasets is not supported by Phalanx")
    field = _field(condition.entity, condition.key)
    if field is None:
        raise MlflowError(
            f"Invalid attribute key '{condition.key[:100]}' specified. Valid keys are {sorted(_ATTRIBUTES)}"
        )
    if field == _STATUS:
        fitting = [ours for theirs, many in OURS.items() if holds(condition, theirs) for ours in many]
        return Comparison(_STATUS, Operator.IN, fitting)
    _check(condition, field)
    value = tuple(map(str, condition.value)) if condition.sign in ("IN", "NOT IN") else condition.value
    return Comparison(field, Operator(condition.sign), value)


def _check(condition: Condition, field: RunField) -> None:
    """Raises MlflowError if MLflow does not support this comparison for such a field."""
    is_number = field.kind in (FieldKind.METRIC, FieldKind.TIME)
    signs = _NUMERIC if is_number else _TEXTUAL
    if condition.sign in _PRESENCE and condition.entity in ("param", "tag"):
        return
    if condition.sign not in signs:
        raise MlflowError(f"Invalid comparator '{condition.sign}' not one of '{', '.join(signs)}'")
    if is_number and isinstance(condition.value, str):
        raise MlflowError(f"Expected numeric value type for {condition.entity}. Found {truncated(condition.value)}")
    if not is_number and not isinstance(condition.value, str | tuple):
        raise MlflowError(f"Expected a quoted string value for {condition.entity} ({truncated(condition.key)})")


def _ordering(sorting: Sorting) -> Ordering:
    field = _field(sorting.entity, sorting.key)
    if field is None:
        raise MlflowError(f"Invalid order_by entity '{sorting.entity}' with key {truncated(sorting.key)}")
    return Ordering(field, sorting.downwards)
