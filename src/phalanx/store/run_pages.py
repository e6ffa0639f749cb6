"""Which runs a page of a list has, and how many match: with the least reading that the database can do it with.

A page is usually found at the beginning of an index: of the newest runs, or of those with the smallest value of a
metric. Each of these is checked. Only if too few of them match are all matching runs read, beginning with the condition
that the fewest fulfil.
"""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

from typing import NamedTuple

from phalanx.store.database import Database
from phalanx.store.query import Clause, QueryTerm, SortIndex, SortKey, all_of

HEADS = (1_000, 20_000)  # how much of an index to read before all matching runs are
MOST_COLLECTED = 200_000  # keys of runs that fulfil a condition: beyond, each run is looked up instead
_ALL = 2**62


class RunFilter(NamedTuple):
    """`these`: a condition on the project and others that need no query."""

    terms: tuple[QueryTerm, ...]
    these: Clause | None = None
    project: str | None = None  # the only one

    @property
    def each(self) -> Clause:
        """For reading few runs."""
        return self._joined([term.each for term in self.terms])

    def all(self, database: Database) -> tuple[Clause, Clause]:
        """What to select from, and under which condition, for reading all matching runs."""
        narrowest = self._narrowest(database)
        where = self._joined([term.each for term in self.terms if term is not narrowest])
        if narrowest is None or narrowest.keys is None:
            return Clause("runs"), where
        keys, args = narrowest.keys
        # SQLite takes the first part of a cross join first, and grouping sorts: it reads `runs` from front to back.
        return (
            Clause(f"(SELECT run_key FROM ({keys}) found_keys GROUP BY run_key) narrowest CROSS JOIN runs", args),
            Clause(f"runs.key = narrowest.run_key AND {where.sql}", where.args),
        )

    @property
    def only_keys(self) -> Clause | None:
        """Selects the keys of the matching runs without reading `runs`; None if that is not possible."""
        if self.these is not None or len(self.terms) != 1 or not self.terms[0].is_unique:
            return None
        return self.terms[0].keys

    def _joined(self, clauses: list[Clause]) -> Clause:
        return all_of([*([self.these] if self.these is not None else []), *clauses])

    def _narrowest(self, database: Database) -> QueryTerm | None:
        """The condition that the fewest runs fulfil, of those that another table decides; None if all are wide."""
        sizes = {place: _size(database, one.keys) for place, one in enumerate(self.terms) if one.keys is not None}
        least = min(sizes, key=sizes.__getitem__, default=None)
        return None if least is None or sizes[least] >= MOST_COLLECTED else self.terms[least]


def _size(database: Database, keys: Clause) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM ({keys.sql}) found_keys LIMIT {MOST_COLLECTED}) some_keys"
    return int(database.rows(sql, keys.args)[0][0])


def count(database: Database, wanted: RunFilter) -> int:
    keys = wanted.only_keys
    if keys is not None:
        return int(database.rows(f"SELECT count(*) FROM ({keys.sql}) all_keys", keys.args)[0][0])
    source, where = wanted.all(database)
    sql = f"SELECT count(*) FROM {source.sql} WHERE {where.sql}"
    return int(database.rows(sql, [*source.args, *where.args])[0][0])


def page(database: Database, wanted: RunFilter, ordered: SortKey, limit: int | None, offset: int) -> list[int]:
    """The keys of a page of the matching runs."""
    end = _ALL if limit is None else max(0, limit)
    begin = max(0, offset)
    if ordered.head is not None and begin + end <= HEADS[-1]:
        for head in HEADS:
            found = _from_head(database, wanted, ordered, ordered.head, head, begin + end)
            if found is not None:
                return found[begin:]
    source, where = wanted.all(database)
    rows = database.rows(
        f"""SELECT runs.key FROM {source.sql}{ordered.join.sql} WHERE {where.sql}
        ORDER BY {ordered.by} LIMIT ? OFFSET ?""",
        [*source.args, *ordered.join.args, *where.args, end, begin],
    )
    return [row[0] for row in rows]


def _from_head(  # noqa: PLR0913, PLR0917
    database: Database, wanted: RunFilter, ordered: SortKey, index: SortIndex, head: int, most: int
) -> list[int] | None:
    """So many matching runs, from the first ones in the order of an index; None if these have fewer, or may have others
    with the same value."""
    having, each = index.having, wanted.each
    if index.table == "runs" and wanted.project is not None:
        having = Clause("project = ?", (wanted.project,))
    first = f"FROM {index.table} WHERE {having.sql} ORDER BY {index.value} {index.way}, {index.key} {index.way}"
    values = f"SELECT {index.key} AS key, {index.value} AS value {first} LIMIT {head}"
    rows = database.rows(
        f"""SELECT runs.key, head.value FROM ({values}) head
        CROSS JOIN runs{ordered.join.sql} WHERE runs.key = head.key AND {each.sql} ORDER BY {ordered.by} LIMIT ?""",
        [*having.args, *ordered.join.args, *each.args, most],
    )
    if len(rows) < most:
        return None
    if index.table != "runs":
        last = database.rows(f"SELECT {index.value} {first} LIMIT 1 OFFSET {head}", having.args)
        if rows and last and last[0][0] == rows[-1][1]:
            return None
    return [row[0] for row in rows]
