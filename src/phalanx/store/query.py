"""The query language of lists: `status:running|starting, metric.loss:<0.1, created_at:>1h, gpus:>2`.

Commas mean "and". A field's colon is followed by a value, `a|b` (either), `<0.1` (`<=`, `>`, `>=`, `=`), `a..b` (times)
or `%part%` (search, ignoring case); `~` before any of these negates it, and `nil` means that the run has no value.
Double quotes make their content literal, with `""` for one quote. `metric.NAME` is the last value of a metric,
`min.NAME` and `max.NAME` its smallest and largest finite ones, and `best.NAME` one of these, by the name of the metric.
Times are UTC and cover the whole unit: `2026-01-01` the day, `2026-01-01 10:30` the minute. A duration (`90s`, `30m`,
`1h`, `7d`, `2w`, or `-1h`) is the moment that long ago: `>1h` is within the last hour, `<7d` is more than a week ago.
`blocked:true` are the runs that wait for other runs.

Reads runs, replicas, tags, stars, labels, params and summaries. SQL is built only from constants of this file; user
input is passed as parameters.
"""

# ruff: noqa: S608 - see above

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from phalanx.deferred_patterns import deferred_pattern
from phalanx.errors import CallError
from phalanx.naming import PARENT
from phalanx.store.metric_direction import best_of
from phalanx.store.records import microseconds

TEXTS = (
    *("id", "name", "description", "status", "project", "kind", "framework", "backend"),
    *("commit", "user", "group", "original"),
)
TIMES = ("created_at", "updated_at", "started_at", "finished_at")
NUMBERS = ("attempt", "priority")
RESOURCES = {"replicas": "replica_count", "cpus": "cpus", "memory": "memory_mib", "gpus": "gpus"}  # columns
METRICS = {
    "metric": "value",
    "metrics": "value",
    "min": "min",
    "max": "max",
    "best": "",
}  # columns of its summary
PARAMS = ("params", "declarations")
_KINDS = {  # of the other fields
    "tags": "tags",
    "parent": "parent",
    "host": "host",
    "nodes": "number",
    "archived": "archived",
    "starred": "starred",
    "blocked": "blocked",
}
NAMED_FIELDS = ("params.NAME", "metric.NAME", "min.NAME", "max.NAME", "best.NAME")
FIELDS = (*TEXTS, *_KINDS, *TIMES, *NUMBERS, *RESOURCES, *NAMED_FIELDS)
ALWAYS_SET = ("id", "status", "project", "kind", "backend", "user", "created_at", "updated_at", *NUMBERS)
UNSORTED = ("tags", "parent", "host", "starred", "blocked")

LONGEST = 10_000
MOST_PARTS = 200  # SQLite rejects deeply nested conditions

_COMPARISON = deferred_pattern(r"(<=|>=|=<|=>|<|>|=)\s*")
_AGO = deferred_pattern(r"-?(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|min|h|d|w)\Z", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MEMORY = deferred_pattern(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtp]?)(?:i?b)?\Z", re.ASCII | re.IGNORECASE)
_MIB = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_NODES = "(SELECT count(DISTINCT host) FROM replicas WHERE run_key = runs.key AND attempt = runs.attempt)"
_TIME = deferred_pattern(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z", re.ASCII)


class Clause(NamedTuple):
    """An SQL fragment and its parameters."""

    sql: str
    args: tuple[Any, ...] = ()


class QueryTerm(NamedTuple):
    """What one term of a query means, in two forms. `each` holds for a row of `runs`. `keys` selects the keys of all
    runs for which it holds; None if only `runs` itself can tell. `is_unique`: no key is selected twice."""

    each: Clause
    keys: Clause | None = None
    is_unique: bool = True


class _Reader(NamedTuple):
    """What a query means depends on: the dialect's expression for ignoring case, the user, and the time."""

    lower: str
    user: str
    now: datetime
    ascii_lower: str


class SortKey(NamedTuple):
    """`head`: the index whose beginning has the first runs in this order; None if there is none."""

    join: Clause
    by: str
    head: SortIndex | None = None


class SortIndex(NamedTuple):
    """The rows of a table that have a value, in the order of an index of it."""

    table: str
    key: str  # its column with the keys of runs
    value: str
    way: str  # ASC or DESC
    having: Clause


class _Piece(NamedTuple):
    """A part of the query, and its position."""

    text: str
    at: int

    def cut(self, start: int, end: int | None = None) -> _Piece:
        part = self.text[start:end]
        return _Piece(part.strip(), self.at + start + len(part) - len(part.lstrip()))

    @property
    def is_quoted(self) -> bool:
        return len(self.text) > 1 and self.text[0] == self.text[-1] == '"'

    @property
    def plain(self) -> str:
        return self.text[1:-1].replace('""', '"') if self.is_quoted else self.text


class _Wrong(Exception):
    def __init__(self, piece: _Piece, message: str) -> None:
        self.piece, self.message = piece, message


def quoted(text: str) -> str:
    """A value, quoted if needed, that the query language takes literally."""
    return '"' + text.replace('"', '""') + '"'


def where(query: str, lower: str, user: str = "", now: datetime | None = None) -> Clause:
    """The condition on `runs` that a query means. `lower` is the dialect's expression for ignoring case, `ascii_lower`
    that for patterns of ASCII only; `starred` is about the stars of `user`, and durations are before `now`.

    Raises CallError that states what is wrong, where, and what is allowed.
    """
    return all_of([term.each for term in terms(query, lower, user, now)])


def terms(
    query: str, lower: str, user: str = "", now: datetime | None = None, ascii_lower: str | None = None
) -> tuple[QueryTerm, ...]:
    """The same, for each term of the query."""
    reader = _Reader(lower, user, now or datetime.now(UTC), ascii_lower or lower)
    with _reporting(query):
        return tuple(_term(term, reader) for term in _terms(query))


def all_of(clauses: list[Clause]) -> Clause:
    return _joined(clauses, " AND ") if clauses else Clause("1 = 1")


def mentions(query: str, field: str) -> bool:
    """Whether a query has a condition on a field. Raises CallError for an invalid query."""
    with _reporting(query):
        return any(_split(term, ":", once=True)[0].text == field for term in _terms(query))


def _terms(query: str) -> list[_Piece]:
    """Raises CallError for a query that is too long, and _Wrong."""
    if len(query) > LONGEST:
        raise CallError(f"a query may have at most {LONGEST:,} characters; this one has {len(query):,}")
    if query.count(",") + query.count("|") > MOST_PARTS:
        raise CallError(f"a query may have at most {MOST_PARTS} parts; this one has more")
    return [term for term in _split(_Piece(query, 0), ",") if term.text]


@contextmanager
def _reporting(query: str) -> Iterator[None]:
    try:
        yield
    except _Wrong as wrong:
        raise CallError(
            f"the query `{_short(query)}` is wrong at character {wrong.piece.at + 1}, "
            f"`{_short(wrong.piece.text)}`: {wrong.message}"
        ) from None


def order(sort: str) -> SortKey:
    """How to sort `runs` by a field; a leading `-` means descending. Runs without a value come last either way."""
    name = sort.strip().removeprefix("-")
    way = "DESC" if sort.strip().startswith("-") else "ASC"
    piece = _Piece(name, 0)
    try:
        kind, column, of = _field(piece)
    except _Wrong as wrong:
        raise CallError(f"cannot sort by `{_short(name)}`: {wrong.message}") from None
    if name in UNSORTED:
        raise CallError(f"cannot sort by `{name}`")
    nothing, tie = Clause(""), ", runs.created_at DESC, runs.key DESC"
    if kind == "metric":
        join = Clause(" LEFT JOIN summaries s ON s.run_key = runs.key AND s.metric = ?", (column,))
        having = Clause(f'metric = ? AND "{of}" IS NOT NULL', (column,))
        index = SortIndex("summaries", "run_key", f'"{of}"', way, having)
        return SortKey(join, f's."{of}" IS NULL, s."{of}" {way}{tie}', index)
    if kind == "param":
        join = Clause(" LEFT JOIN params s ON s.run_key = runs.key AND s.name = ?", (column,))
        index = SortIndex("params", "run_key", "number", way, Clause("name = ? AND number IS NOT NULL", (column,)))
        return SortKey(join, f"s.run_key IS NULL, s.number IS NULL, s.number {way}, s.text {way}{tie}", index)
    if name in ("created_at", "updated_at"):  # must match their indexes exactly
        index = SortIndex("runs", "key", name, way, Clause("1 = 1"))
        return SortKey(nothing, f"{column} {way}, runs.key {way}", index)
    return SortKey(nothing, f"{column} {way}{tie}" if name in ALWAYS_SET else f"{column} IS NULL, {column} {way}{tie}")


def _split(piece: _Piece, separator: str, *, once: bool = False) -> list[_Piece]:
    """Split at every separator outside double quotes, or at the first."""
    found: list[_Piece] = []
    start, inside = 0, False
    for place, sign in enumerate(piece.text):
        if sign == '"':
            inside = not inside
        elif sign == separator and not inside and not (once and found):
            found.append(piece.cut(start, place))
            start = place + 1
    if inside:
        raise _Wrong(piece, 'a double quote is not closed (inside quotes, write `""` for one)')
    return [*found, piece.cut(start)]


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


def _joined(clauses: list[Clause], by: str) -> Clause:
    args = tuple(arg for clause in clauses for arg in clause.args)
    return Clause(f"({by.join(clause.sql for clause in clauses)})", args)


def _field(piece: _Piece) -> tuple[str, str, str]:
    """The kind of a field, its SQL column or the name of the metric or param, and the column of a metric."""
    name = piece.text
    head, dot, rest = name.partition(".")
    if dot and rest and head in (*METRICS, *PARAMS):
        named = _Piece(rest, 0).plain
        return (
            ("metric" if head in METRICS else "param"),
            named,
            best_of(named) if head == "best" else METRICS.get(head, ""),
        )
    for kind, names in (("text", TEXTS), ("time", TIMES), ("number", NUMBERS)):
        if name in names:
            return kind, f'runs."{name}"', ""
    if name in RESOURCES:
        return ("memory" if name == "memory" else "number"), f'runs."{RESOURCES[name]}"', ""
    if name in _KINDS:
        return _KINDS[name], _NODES if name == "nodes" else f'runs."{name}"', ""
    if name in (*METRICS, *PARAMS):
        raise _Wrong(piece, f"name one: `{name}.NAME`")
    raise _Wrong(piece, f"there is no such field{_did_you_mean(head, dot + rest)} The fields are {', '.join(FIELDS)}")


def _did_you_mean(head: str, rest: str) -> str:
    from difflib import get_close_matches

    known = (*METRICS, *PARAMS) if rest else FIELDS[: -len(NAMED_FIELDS)]
    near = get_close_matches(head[:80].casefold(), known, n=1)
    return f"; did you mean `{near[0]}{rest}`?" if near else "."


def _term(term: _Piece, reader: _Reader) -> QueryTerm:
    field, *rest = _split(term, ":", once=True)
    if not rest:
        raise _Wrong(term, "write `field:value`")
    kind, column, of = _field(field)
    values = rest[0]
    negated = values.text.startswith("~")
    alternatives = _split(values.cut(1) if negated else values, "|")
    for piece in alternatives:
        if not piece.text:
            raise _Wrong(term, "a value is missing")
    condition = partial(_metric, of) if kind == "metric" else _CONDITIONS[kind]
    found = [
        QueryTerm(_absent(kind, column))
        if piece.text == "nil" and kind in _ABSENT
        else condition(column, piece, reader)
        for piece in alternatives
    ]
    if not negated and len(found) == 1:
        return found[0]
    each = _joined([one.each for one in found], " OR ")
    if negated:
        return QueryTerm(Clause(f"({each.sql} IS NOT TRUE)", each.args))
    sets = [one.keys for one in found if one.keys is not None]
    return QueryTerm(each, _united(sets) if len(sets) == len(found) else None, is_unique=False)


def _united(sets: list[Clause]) -> Clause:
    return Clause(" UNION ALL ".join(one.sql for one in sets), tuple(arg for one in sets for arg in one.args))


def _has_row(table: str, *rows: Clause, is_unique: bool = True) -> QueryTerm:
    """A run has a row in a table for which one of these conditions holds; `is_unique`: at most one such row."""
    each = [Clause(f"EXISTS (SELECT 1 FROM {table} WHERE run_key = runs.key AND {row.sql})", row.args) for row in rows]
    keys = [Clause(f"SELECT run_key FROM {table} WHERE {row.sql}", row.args) for row in rows]
    return QueryTerm(_joined(each, " OR "), _united(keys), is_unique)


_ABSENT: dict[str, str | None] = {  # how a run has no value of a field; None: the column is NULL
    **dict.fromkeys(("text", "time", "number", "memory")),
    "tags": "NOT EXISTS (SELECT 1 FROM tags WHERE run_key = runs.key)",
    "host": "NOT EXISTS (SELECT 1 FROM replicas WHERE run_key = runs.key AND host IS NOT NULL)",
    "parent": "NOT EXISTS (SELECT 1 FROM labels WHERE run_key = runs.key AND name = ?)",
    "param": "NOT EXISTS (SELECT 1 FROM params WHERE run_key = runs.key AND name = ?)",
    "metric": "NOT EXISTS (SELECT 1 FROM summaries WHERE run_key = runs.key AND metric = ?)",
}


def _absent(kind: str, column: str) -> Clause:
    sql = _ABSENT[kind] or f"{column} IS NULL"
    name = PARENT if kind == "parent" else column
    return Clause(sql, (name,) if "?" in sql else ())


def _compared(piece: _Piece) -> tuple[str, _Piece]:
    """`<=5` as `<=` and `5`; a value alone means `=`."""
    match = _COMPARISON.match(piece.text)
    if match is None:
        return "=", piece
    sign = {"=<": "<=", "=>": ">="}.get(match[1], match[1])
    value = piece.cut(match.end())
    if not value.text:
        raise _Wrong(piece, "a value is missing")
    return sign, value


def _own(read: Callable[[str, _Piece, _Reader], Clause]) -> Callable[[str, _Piece, _Reader], QueryTerm]:
    """A condition on a column of `runs`."""
    return lambda column, piece, reader: QueryTerm(read(column, piece, reader))


def _text(column: str, piece: _Piece, reader: _Reader) -> Clause:
    sign, value = _compared(piece)
    if sign != "=":
        raise _Wrong(piece, f"`{sign}` is not supported for texts: write a value, `a|b` or `%part%`")
    return _searched(column, value, reader) or Clause(f"{column} = ?", (value.plain,))


def _searched(column: str, value: _Piece, reader: _Reader) -> Clause | None:
    text = value.text
    if value.is_quoted or not (text.startswith("%") or text.endswith("%")):
        return None
    middle = re.sub(r"([\\%_])", r"\\\1", text.removeprefix("%").removesuffix("%").lower())
    pattern = ("%" if text.startswith("%") else "") + middle + ("%" if text.endswith("%") else "")
    lower = reader.ascii_lower if pattern.isascii() else reader.lower
    return Clause(rf"{lower.format(column)} LIKE ? ESCAPE '\'", (pattern,))


def _tag(_: str, piece: _Piece, reader: _Reader) -> QueryTerm:
    found = _text("tag", piece, reader)
    return _has_row("tags", found, is_unique=found.sql == "tag = ?")


def _parent(_: str, piece: _Piece, reader: _Reader) -> QueryTerm:
    found = _text("text", piece, reader)
    return _has_row("labels", Clause(f"name = ? AND {found.sql}", (PARENT, *found.args)))


def _host(_: str, piece: _Piece, reader: _Reader) -> QueryTerm:
    return _has_row("replicas", _text("host", piece, reader), is_unique=False)


def _archived(column: str, piece: _Piece, _: _Reader) -> Clause:
    return Clause(f"{column} = {int(_truth(piece))}")


def _starred(_: str, piece: _Piece, reader: _Reader) -> QueryTerm:
    return _or_not(_has_row("stars", Clause('"user" = ?', (reader.user,))), piece)


def _blocked(_: str, piece: _Piece, __: _Reader) -> QueryTerm:
    return _or_not(_has_row("dependencies", Clause("1 = 1"), is_unique=False), piece)


def _or_not(found: QueryTerm, piece: _Piece) -> QueryTerm:
    return found if _truth(piece) else QueryTerm(Clause(f"NOT {found.each.sql}", found.each.args))


def _truth(piece: _Piece) -> bool:
    found = _TRUTH.get(_compared(piece)[1].text.casefold())
    if found is None:
        raise _Wrong(piece, "expected `true` or `false`")
    return found


def number(text: str) -> float | None:
    """The finite number in a string."""
    try:
        found = float(text) if "_" not in text else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _metric(of: str, name: str, piece: _Piece, reader: _Reader) -> QueryTerm:
    """A last value of NaN is NULL in the store; a minimum or maximum is NULL without any finite value."""
    sign, value = _compared(piece)
    is_nan = sign == "=" and value.text.casefold() == "nan"
    found = Clause(f'"{of}" IS NULL') if is_nan else _number(f'"{of}"', piece, reader)
    return _has_row("summaries", Clause(f"metric = ? AND {found.sql}", (name, *found.args)))


def _number(column: str, piece: _Piece, _: _Reader) -> Clause:
    sign, value = _compared(piece)
    try:
        amount = float(value.text)
    except ValueError:
        amount = math.nan
    if math.isnan(amount):
        raise _Wrong(value, "expected a number, as in `<0.1`")
    return Clause(f"{column} {sign} ?", (amount,))


def _memory(column: str, piece: _Piece, _: _Reader) -> Clause:
    sign, value = _compared(piece)
    match = _MEMORY.match(value.text)
    if match is None:
        raise _Wrong(value, "expected an amount of memory, as in `>16g` (k, m, g or t; without a unit: MiB)")
    return Clause(f"{column} {sign} ?", (float(match[1]) * _MIB[match[2].lower()],))


def _param(name: str, piece: _Piece, reader: _Reader) -> QueryTerm:
    """Numbers compare with numbers, everything else as text."""
    sign, value = _compared(piece)
    amount = None if value.is_quoted else number(value.text)
    if amount is None:
        found = _searched("text", value, reader) if sign == "=" else None
        clauses = [found or Clause(f"text {sign} ?", (value.plain,))]
    else:
        clauses = [Clause(f"number {sign} ?", (amount,))]
        if sign != "=":
            clauses.append(Clause(f"number IS NULL AND text {sign} ?", (value.text,)))
    # Not joined inside: alone, the first of them needs only the index.
    return _has_row("params", *(Clause(f"name = ? AND {clause.sql}", (name, *clause.args)) for clause in clauses))


def _time(column: str, piece: _Piece, reader: _Reader) -> Clause:
    sign, value = _compared(piece)
    first, dots, last = value.text.partition("..")
    if dots:
        if sign != "=" or not (first.strip() or last.strip()):
            raise _Wrong(piece, "expected a range such as `2026-01-01..2026-01-31` or `2d..1d`, or with one open end")
        ends = [(">=", 0, value.cut(0, len(first))), ("<", 1, value.cut(len(first) + 2))]
        clauses = [
            Clause(f"{column} {way} ?", (_span(end, reader.now)[which],)) for way, which, end in ends if end.text
        ]
        return _joined(clauses, " AND ")
    start, end = _span(value, reader.now)
    if sign == "=" and start == end:  # a duration: since then
        return Clause(f"{column} >= ?", (start,))
    if sign == "=":
        return Clause(f"({column} >= ? AND {column} < ?)", (start, end))
    way, edge = {"<": ("<", start), "<=": ("<", end), ">": (">=", end), ">=": (">=", start)}[sign]
    return Clause(f"{column} {way} ?", (edge,))


def _span(piece: _Piece, now: datetime) -> tuple[int, int]:
    """The start of the named unit of time, and of the next one: microseconds since the epoch. Of a duration, twice the
    moment that long ago."""
    ago = _AGO.match(piece.plain)
    if ago is not None:
        moment = max(0, microseconds(now) - round(float(ago[1]) * _UNITS_S[ago[2]] * 1_000_000))
        return moment, moment
    match = _TIME.match(piece.plain)
    if match is None:
        raise _Wrong(
            piece, "expected a time such as `2026-01-31`, `2026-01-31 13:45` or `1h` (an hour ago; s, m, h, d, w)"
        )
    try:
        start = datetime.fromisoformat(match[0])
    except ValueError as error:
        raise _Wrong(piece, f"{error}") from None
    clock, seconds, fraction = match.groups()
    length_s = 86_400 if clock is None else 60 if seconds is None else 1
    begin = microseconds(start if start.tzinfo else start.replace(tzinfo=UTC))
    return begin, begin + (1 if fraction else length_s * 1_000_000)


_CONDITIONS: dict[str, Callable[[str, _Piece, _Reader], QueryTerm]] = {
    "text": _own(_text),
    "time": _own(_time),
    "number": _own(_number),
    "memory": _own(_memory),
    "archived": _own(_archived),
    "tags": _tag,
    "parent": _parent,
    "host": _host,
    "starred": _starred,
    "blocked": _blocked,
    "param": _param,
}
