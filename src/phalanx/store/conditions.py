"""Search for runs by conditions given as values, as MLflow's filters need it. Reads runs, params, labels and summaries.

`query` has Phalanx's own query language. SQL is built only from constants of this file; user input is passed as
parameters.
"""

# ruff: noqa: S608 - see above

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from phalanx.store.database import Database
from phalanx.store.query import ALWAYS_SET, TEXTS, Clause


class FieldKind(StrEnum):
    COLUMN = "column"  # a text column of the run itself
    TIME = "time"  # in milliseconds since the epoch
    PARAM = "param"
    LABEL = "label"
    METRIC = "metric"  # its last value


class Operator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    LIKE = "LIKE"  # `%` and `_` are wildcards without an escape; case-sensitive
    ILIKE = "ILIKE"
    IN = "IN"
    NOT_IN = "NOT IN"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


class RunField(NamedTuple):
    """`name` is a key of `COLUMNS` or `TIMES`, or the name of a param, label or metric.

    A column's text is compared with `prefix` before and `suffix` after it.
    """

    kind: FieldKind
    name: str
    prefix: str = ""
    suffix: str = ""


class Comparison(NamedTuple):
    """`value` is a string or a number; for IN and NOT IN a sequence of strings; for IS NULL and IS NOT NULL it is
    unused."""

    field: RunField
    operator: Operator
    value: Any = None


class Ordering(NamedTuple):
    field: RunField
    descending: bool = False


COLUMNS = {name: f'runs."{name}"' for name in TEXTS}
TIMES = {
    "started_or_created": "coalesce(runs.started_at, runs.created_at) / 1000",
    "finished_at": "runs.finished_at / 1000",
}
_TABLES = {  # the table, and its columns of names and values
    FieldKind.PARAM: ("params", "name", "text"),
    FieldKind.LABEL: ("labels", "name", "text"),
    FieldKind.METRIC: ("summaries", "metric", "value"),
}
_NEVER_NULL = {*ALWAYS_SET, "started_or_created"}


def selection(
    database: Database, comparisons: Iterable[Comparison], orderings: Iterable[Ordering], limit: int, offset: int
) -> Clause:
    """The statement that selects the keys of a page of the runs for which all comparisons hold.

    Runs without a value come last, in either direction; among equal runs, the one that was added first comes first.
    """
    wanted = [_condition(comparison, database) for comparison in comparisons] or [Clause("1 = 1")]
    joins: list[Clause] = []
    by: list[Clause] = []
    for place, (field, descending) in enumerate(orderings):
        value = _own(field)
        if value is None:
            table, name, column = _TABLES[field.kind]
            join = f"LEFT JOIN {table} o{place} ON o{place}.run_key = runs.key AND o{place}.{name} = ?"
            joins.append(Clause(join, (field.name,)))
            value = Clause(f"o{place}.{column}")
        if field.kind in _TABLES or field.name not in _NEVER_NULL:
            by.append(Clause(f"({value.sql}) IS NULL", value.args))
        by.append(Clause(f"{value.sql} {'DESC' if descending else 'ASC'}", value.args))
    return Clause(
        f"""SELECT runs.key FROM runs {" ".join(join.sql for join in joins)}
        WHERE {" AND ".join(clause.sql for clause in wanted)}
        ORDER BY {", ".join(clause.sql for clause in (*by, Clause("runs.key")))} LIMIT ? OFFSET ?""",
        (*(arg for clause in (*joins, *wanted, *by) for arg in clause.args), limit, offset),
    )


def _own(field: RunField) -> Clause | None:
    """A value in the row of the run itself; None if it is in another table."""
    if field.kind is FieldKind.TIME:
        return Clause(TIMES[field.name])
    if field.kind is not FieldKind.COLUMN:
        return None
    column = COLUMNS[field.name]
    if not (field.prefix or field.suffix):
        return Clause(column)
    return Clause(f"(? || {column} || ?)", (field.prefix, field.suffix))


def _condition(comparison: Comparison, database: Database) -> Clause:
    field, operator, _ = comparison
    own = _own(field)
    if own is not None:
        return _compared(own, comparison, database)
    table, name, column = _TABLES[field.kind]
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        there = f"EXISTS (SELECT 1 FROM {table} t WHERE t.run_key = runs.key AND t.{name} = ?)"
        return Clause(there if operator is Operator.IS_NOT_NULL else f"NOT {there}", (field.name,))
    found = _compared(Clause(column), comparison, database)
    rows = f"SELECT run_key FROM {table} WHERE {name} = ? AND {found.sql}"
    return Clause(f"runs.key IN ({rows})", (field.name, *found.args))


def _compared(own: Clause, comparison: Comparison, database: Database) -> Clause:
    _, operator, value = comparison
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return Clause(f"{own.sql} {operator}", own.args)
    if operator in (Operator.IN, Operator.NOT_IN):
        return _listed(own, operator, value)
    if operator is Operator.ILIKE:
        return Clause(rf"{database.lower.format(own.sql)} LIKE ? ESCAPE '\'", (*own.args, _escaped(value).lower()))
    if operator is Operator.LIKE:
        if database.dialect == "sqlite":  # its LIKE ignores the case of ASCII
            return Clause(f"{own.sql} GLOB ?", (*own.args, _glob(value)))
        return Clause(rf"{own.sql} LIKE ? ESCAPE '\'", (*own.args, _escaped(value)))
    return Clause(f"{own.sql} {operator} ?", (*own.args, value))


def _listed(own: Clause, operator: Operator, values: Sequence[Any]) -> Clause:
    if not values:  # PostgreSQL has no empty list
        return Clause("1 = 0" if operator is Operator.IN else "1 = 1")
    return Clause(f"{own.sql} {operator} ({', '.join('?' * len(values))})", (*own.args, *values))


def _escaped(like: str) -> str:
    return like.replace("\\", "\\\\")


def _glob(like: str) -> str:
    return re.sub(r"[*?\[]", r"[\g<0>]", like).replace("%", "*").replace("_", "?")
