"""Groups runs by the values of params, tags and other fields, and aggregates their metrics. Reads runs, tags, params
and summaries.

SQL is built only from constants of this file; user input is passed as parameters. One statement reads all matching runs
once, independent of the number of groups.
"""

# ruff: noqa: S608 - see above

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from phalanx.deferred_patterns import deferred_pattern
from phalanx.errors import CallError
from phalanx.store.database import Database
from phalanx.store.kinds import IS_RUN, WHOLES
from phalanx.store.metric_direction import best_of
from phalanx.store.query import METRICS, NUMBERS, PARAMS, RESOURCES, TEXTS, Clause, quoted
from phalanx.store.records import utc

MOST_FIELDS = 3
MOST_COLUMNS = 12
STATES = {  # of a run, for counts
    "succeeded": "runs.status = 'succeeded'",
    "failed": "runs.status IN ('failed', 'upstream_failed')",
    "stopped": "runs.status IN ('stopped', 'skipped')",
}
_PLAIN_NAME = deferred_pattern(r"[\w./-]+\Z")
_OWN = {name: f'runs."{RESOURCES.get(name, name)}"' for name in (*TEXTS, *NUMBERS, *RESOURCES)}
BY = (*(name for name in _OWN if name not in ("id", "description")), "tags", "params.NAME")


class MetricSpread(NamedTuple):
    """The values of a metric in a group: how many runs have one, and their mean, minimum and maximum."""

    runs: int
    mean: float | None
    min: float | None
    max: float | None


class GroupedRuns(NamedTuple):
    """Runs with the same values. `query` selects them; `statuses` has the states of `STATES` and `active`."""

    values: tuple[Any, ...]
    query: str
    runs: int
    statuses: dict[str, int]
    first_at: datetime
    last_at: datetime
    metrics: dict[str, MetricSpread]


class _GroupField(NamedTuple):
    """`name` as in queries; `exprs` are the columns that make a group."""

    name: str
    join: Clause
    exprs: tuple[str, ...]

    def value(self, found: Sequence[Any]) -> Any:
        if len(found) == 1:
            return found[0]
        amount, text, is_json = found
        if amount is not None:
            return int(amount) if amount == int(amount) and abs(amount) < 1e15 else amount
        return json.loads(text) if is_json and text is not None else text

    def term(self, found: Sequence[Any]) -> str:
        """The part of a query that selects the runs with this value."""
        value = found[0] if found[0] is not None or len(found) == 1 else found[1]
        return f"{self.name}:{'nil' if value is None else quoted(value) if isinstance(value, str) else repr(value)}"


def _group_field(name: str, place: int) -> _GroupField:
    """Raises CallError for a field that runs cannot be grouped by."""
    head, dot, rest = name.partition(".")
    if dot and rest and head in PARAMS:
        plain = rest[1:-1].replace('""', '"') if rest[0] == rest[-1] == '"' and len(rest) > 1 else rest
        table = f"g{place}"
        join = Clause(f" LEFT JOIN params {table} ON {table}.run_key = runs.key AND {table}.name = ?", (plain,))
        named = plain if _PLAIN_NAME.match(plain) else quoted(plain)
        text = f"CASE WHEN {table}.number IS NULL THEN {table}.text END"
        json_mark = f"CASE WHEN {table}.number IS NULL THEN {table}.is_json END"
        return _GroupField(f"params.{named}", join, (f"{table}.number", text, json_mark))
    if name == "tags":
        table = f"g{place}"
        return _GroupField(name, Clause(f" LEFT JOIN tags {table} ON {table}.run_key = runs.key"), (f"{table}.tag",))
    if name in BY:
        return _GroupField(name, Clause(""), (_OWN[name],))
    raise CallError(f"cannot group by `{name[:100]}`: use one of {', '.join(BY)}")


class _Aggregate(NamedTuple):
    """A metric column of the groups."""

    field: str
    join: Clause
    column: str
    way: str  # how to sort by it: avg, min or max

    @property
    def exprs(self) -> tuple[str, ...]:
        return tuple(f"{way}({self.column})" for way in ("count", "avg", "min", "max"))


def _aggregate(field: str, place: int) -> _Aggregate:
    head, _, rest = field.partition(".")
    if head not in METRICS or not rest:
        allowed = "`metric.NAME`, `min.NAME`, `max.NAME` or `best.NAME`"
        raise CallError(f"groups have no column `{field[:100]}`: use {allowed}")
    name = rest[1:-1].replace('""', '"') if rest[0] == rest[-1] == '"' and len(rest) > 1 else rest
    of = best_of(name) if head == "best" else METRICS[head]
    join = Clause(f" LEFT JOIN summaries m{place} ON m{place}.run_key = runs.key AND m{place}.metric = ?", (name,))
    return _Aggregate(field, join, f'm{place}."{of}"', of if of in ("min", "max") else "avg")


def grouped(  # noqa: PLR0913, PLR0917 - what a list of groups can be asked for
    database: Database, wanted: Clause, by: Sequence[str], columns: Sequence[str], sort: str, limit: int, offset: int
) -> tuple[list[GroupedRuns], int]:
    """A page of the groups of the wanted runs, and how many there are. `sort`: `count`, `created_at` (of the newest
    run), one of the columns, or `value`; `-` means descending. Groups without a value come last. Raises CallError."""
    if not 1 <= len(by) <= MOST_FIELDS:
        raise CallError(f"runs are grouped by 1 to {MOST_FIELDS} fields")
    if len(columns) > MOST_COLUMNS:
        raise CallError(f"groups have at most {MOST_COLUMNS} columns")
    fields = [_group_field(name, place) for place, name in enumerate(by)]
    aggregates = [_aggregate(field, place) for place, field in enumerate(columns)]
    joins = [*(field.join for field in fields), *(one.join for one in aggregates)]
    keys = [expr for field in fields for expr in field.exprs]
    counts = [f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)" for condition in STATES.values()]
    own = ("count(*) OVER ()", "count(*)", "min(runs.created_at)", "max(runs.created_at)", *counts)
    figures = [expr for one in aggregates for expr in one.exprs]
    rows = database.rows(
        f"""SELECT {", ".join((*keys, *own, *figures))} FROM runs{"".join(join.sql for join in joins)}
        WHERE runs.kind NOT IN ({", ".join(map(repr, WHOLES))}) AND {wanted.sql} GROUP BY {", ".join(keys)}
        ORDER BY {_order(sort, keys, aggregates)} LIMIT ? OFFSET ?""",
        [*(arg for join in joins for arg in join.args), *wanted.args, limit, offset],
    )
    return [_read(row, fields, aggregates) for row in rows], int(rows[0][len(keys)]) if rows else 0


def _order(sort: str, keys: Sequence[str], aggregates: Sequence[_Aggregate]) -> str:
    name, way = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
    tie = ", ".join(f"{key} IS NULL, {key}" for key in keys)
    if name == "count":
        return f"count(*) {way}, {tie}"
    if name in ("created_at", "updated_at"):
        return f"max(runs.created_at) {way}, {tie}"
    for one in aggregates:
        if one.field == name:
            figure = f"{one.way}({one.column})"
            return f"{figure} IS NULL, {figure} {way}, {tie}"
    return ", ".join(f"{key} IS NULL, {key} {way}" for key in keys)


def _read(row: Sequence[Any], fields: Sequence[_GroupField], aggregates: Sequence[_Aggregate]) -> GroupedRuns:
    place, values, terms = 0, [], [IS_RUN]
    for field in fields:
        found = row[place : place + len(field.exprs)]
        values.append(field.value(found))
        terms.append(field.term(found))
        place += len(field.exprs)
    _, count, first, last = row[place : place + 4]
    states = [int(found) for found in row[place + 4 : place + 4 + len(STATES)]]
    place += 4 + len(STATES)
    metrics = {}
    for one in aggregates:
        metrics[one.field] = MetricSpread(*row[place : place + 4])
        place += 4
    statuses = {**dict(zip(STATES, states, strict=True)), "active": int(count) - sum(states)}
    return GroupedRuns(tuple(values), ", ".join(terms), int(count), statuses, utc(first), utc(last), metrics)
