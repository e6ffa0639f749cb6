"""Searching runs as MLflow does: conditions and orders as SQL.

SQL is put together from constants of this file alone; whatever people wrote is a parameter.
"""

# ruff: noqa: S608 - see above

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from phalanx.server.labels import DELETED
from phalanx.server.mlflow.errors import MlflowError, truncated
from phalanx.server.mlflow.filters import Condition, Sorting, holds
from phalanx.server.mlflow.statuses import OURS
from phalanx.store import Run, Store
from phalanx.store.query import Clause

NAMED = {"mlflow.runName": "name", "mlflow.note.content": "description"}  # tags that are columns of ours
_START = "coalesce(runs.started_at, runs.created_at) / 1000"
_TIMES = {
    **dict.fromkeys(("start_time", "created", "Created"), _START),
    "end_time": "runs.finished_at / 1000",
}
_TEXTS = {
    **dict.fromkeys(("run_id", "run_uuid"), "runs.id"),
    **dict.fromkeys(("run_name", "run name", "Run name", "Run Name"), "runs.name"),
    "user_id": 'runs."user"',
    "artifact_uri": "'mlflow-artifacts:/' || runs.id || '/artifacts'",
}
_COMPARED = ("=", "!=", "<", "<=", ">", ">=")
MOST_PROJECTS = 500


def search(  # noqa: PLR0913 - what a search has
    store: Store,
    projects: Sequence[str],
    wanted: Sequence[Condition],
    order: Sequence[Sorting],
    *,
    limit: int,
    offset: int = 0,
    stage: str = "ACTIVE_ONLY",
) -> list[Run]:
    """A page of runs. Raises Fault for what MLflow does not know either."""
    if len(projects) > MOST_PROJECTS:
        raise MlflowError(f"runs of at most {MOST_PROJECTS} experiments can be searched at once")
    if not projects:
        return []
    texts = _Texts(store)
    clauses = [Clause(f"runs.project IN ({_marks(projects)})", tuple(projects)), *_stage(stage)]
    clauses += [texts.condition(condition) for condition in wanted]
    joins, by = _order(order)
    args = [arg for clause in (*joins, *clauses) for arg in clause.args]
    return store._select(
        f"""SELECT runs.key FROM runs {" ".join(join.sql for join in joins)}
        WHERE {" AND ".join(clause.sql for clause in clauses)} ORDER BY {", ".join(by)} LIMIT ? OFFSET ?""",
        [*args, limit, offset],
    )


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _stage(stage: str) -> list[Clause]:
    gone = "EXISTS (SELECT 1 FROM labels gone WHERE gone.run_key = runs.key AND gone.name = ?)"
    if stage == "ALL":
        return []
    return [Clause(gone if stage == "DELETED_ONLY" else f"NOT {gone}", (DELETED,))]


class _Texts:
    """Conditions on texts: the databases differ in what disregards case."""

    def __init__(self, store: Store) -> None:
        self.lower = store._database.lower
        self.is_sqlite = store._database.dialect == "sqlite"

    def condition(self, condition: Condition) -> Clause:
        match condition.entity:
            case "metric":
                return _metric(condition)
            case "param":
                return self._row("params", condition)
            case "tag":
                return self._tag(condition)
            case "attribute":
                return self._attribute(condition)
        raise MlflowError("searching by datasets is not supported by Phalanx")

    def _row(self, table: str, condition: Condition) -> Clause:
        """One row of a table of names and texts."""
        rows = f"SELECT run_key FROM {table} WHERE name = ?"
        if condition.sign == "IS NULL":
            return Clause(f"runs.key NOT IN ({rows})", (condition.key,))
        if condition.sign == "IS NOT NULL":
            return Clause(f"runs.key IN ({rows})", (condition.key,))
        compared = self._compared("text", condition, ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN"))
        return Clause(f"runs.key IN ({rows} AND {compared.sql})", (condition.key, *compared.args))

    def _tag(self, condition: Condition) -> Clause:
        column = NAMED.get(condition.key)
        if column is None:
            return self._row("labels", condition)
        if condition.sign in ("IS NULL", "IS NOT NULL"):
            return Clause(f'runs."{column}" {condition.sign}')
        return self._compared(f'runs."{column}"', condition, ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN"))

    def _attribute(self, condition: Condition) -> Clause:
        if condition.key in _TIMES:
            return _numeric(_TIMES[condition.key], condition)
        if condition.key == "status":
            fitting = [ours for theirs, many in OURS.items() if holds(condition, theirs) for ours in many]
            return Clause(f"runs.status IN ({_marks(fitting)})", tuple(fitting)) if fitting else Clause("1 = 0")
        if condition.key in _TEXTS:
            signs = ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN")
            return self._compared(_TEXTS[condition.key], condition, signs)
        known = sorted({*_TIMES, *_TEXTS, "status"})
        raise MlflowError(f"Invalid attribute key '{condition.key[:100]}' specified. Valid keys are {known}")

    def _compared(self, column: str, condition: Condition, signs: Sequence[str]) -> Clause:
        sign, value = condition.sign, condition.value
        if sign not in signs:
            raise MlflowError(f"Invalid comparator '{sign}' not one of '{', '.join(signs)}'")
        if sign in ("IN", "NOT IN"):
            return Clause(f"{column} {sign} ({_marks(value)})", tuple(map(str, value)))
        if not isinstance(value, str):
            raise MlflowError(f"Expected a quoted string value for {condition.entity} ({truncated(condition.key)})")
        if sign == "ILIKE":
            return Clause(rf"{self.lower.format(column)} LIKE ? ESCAPE '\'", (_escaped(value).lower(),))
        if sign == "LIKE":
            if self.is_sqlite:  # whose LIKE disregards the case of ASCII
                return Clause(f"{column} GLOB ?", (_glob(value),))
            return Clause(rf"{column} LIKE ? ESCAPE '\'", (_escaped(value),))
        return Clause(f"{column} {sign} ?", (value,))


def _escaped(like: str) -> str:
    """MLflow's LIKE has no sign that takes the meaning from another one."""
    return like.replace("\\", "\\\\")


def _glob(like: str) -> str:
    return re.sub(r"[*?\[]", r"[\g<0>]", like).replace("%", "*").replace("_", "?")


def _metric(condition: Condition) -> Clause:
    compared = _numeric("value", condition)
    sql = f"runs.key IN (SELECT run_key FROM summaries WHERE metric = ? AND {compared.sql})"
    return Clause(sql, (condition.key, *compared.args))


def _numeric(column: str, condition: Condition) -> Clause:
    if condition.sign not in _COMPARED:
        raise MlflowError(f"Invalid comparator '{condition.sign}' not one of '{', '.join(_COMPARED)}'")
    if isinstance(condition.value, str):
        raise MlflowError(f"Expected numeric value type for {condition.entity}. Found {truncated(condition.value)}")
    return Clause(f"{column} {condition.sign} ?", (condition.value,))


def _order(order: Sequence[Sorting]) -> tuple[list[Clause], list[str]]:
    """What has no value comes last; of equals the newest first."""
    joins: list[Clause] = []
    by: list[str] = []
    for place, sorting in enumerate(order):
        way = "DESC" if sorting.downwards else "ASC"
        table = {"metric": "summaries", "param": "params", "tag": "labels"}.get(sorting.entity)
        if sorting.entity == "tag" and sorting.key in NAMED:
            column = f'runs."{NAMED[sorting.key]}"'
        elif table is not None:
            alias, name = f"o{place}", "metric" if table == "summaries" else "name"
            join = f"LEFT JOIN {table} {alias} ON {alias}.run_key = runs.key AND {alias}.{name} = ?"
            joins.append(Clause(join, (sorting.key,)))
            column = f"{alias}.value" if table == "summaries" else f"{alias}.text"
        else:
            column = {**_TIMES, **_TEXTS, "status": "runs.status"}.get(sorting.key, "")
            if sorting.entity != "attribute" or not column:
                raise MlflowError(f"Invalid order_by entity '{sorting.entity}' with key {truncated(sorting.key)}")
        by += [f"({column}) IS NULL", f"{column} {way}"]
    return joins, [*by, f"{_START} DESC", "runs.id"]
