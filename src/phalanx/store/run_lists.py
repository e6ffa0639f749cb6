"""Lists over many runs: which runs match a query, names of params and metrics, groups, changes. Reads runs, params,
summaries and facts."""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.errors import CallError
from phalanx.store import run_pages
from phalanx.store.database import Database
from phalanx.store.kinds import WHOLES
from phalanx.store.project_scope import ProjectScope
from phalanx.store.query import Clause, all_of, mentions, order, terms
from phalanx.store.records import DONE, StatusChange, microseconds, utc
from phalanx.store.run_pages import RunFilter
from phalanx.store.sql import label

if TYPE_CHECKING:
    from phalanx.store.grouped_runs import GroupedRuns

BATCH = 500
MOST_PROJECTS = 400  # in addition to a query's parameters: at most 999
_SEEN = "key, id, project, status, attempt, updated_at"
_STAMP = "key, id, updated_at, status, attempt, reason, name, priority, archived"
_ACTIVE = f"status NOT IN ({', '.join(map(repr, DONE))})"

# The set is small and has an index of its own, so counts by other indexes need no row of `runs`.
_IS_NOT_ARCHIVED = "runs.key NOT IN (SELECT hidden.key FROM runs AS hidden WHERE hidden.archived = 1)"
_ARCHIVED = "(SELECT key AS hidden_key FROM runs WHERE archived = 1) hidden CROSS JOIN runs"
_IS_NO_TRIAL = f"""(runs."group" IS NULL OR NOT EXISTS (
    SELECT 1 FROM runs AS whole WHERE whole.id = runs."group" AND whole.kind IN ({", ".join(map(repr, WHOLES))})))"""

Projects = str | Collection[str] | None


class RunStamp(NamedTuple):
    """The columns that show whether a run has changed. `key` grows with every added run."""

    key: int
    id: str
    project: str
    status: str
    attempt: int
    updated_at: datetime


class RunGroup(NamedTuple):
    name: str
    project: str
    statuses: dict[str, int]
    created_at: datetime


# The next project inside of a project. Names are compared byte by byte, and "0" follows "/".
_NEXT_NESTED = "SELECT min(project) FROM runs WHERE project > ? AND project < ?"


def of_projects(database: Database, project: Projects) -> Clause:
    """Condition for the runs of one project with those nested in it, of a `ProjectScope`, or of exactly these. Raises
    CallError when there are too many for a statement."""
    if project is None:
        return Clause("1 = 1")
    if isinstance(project, str):
        project = ProjectScope([project])
    names = set(project)
    if isinstance(project, ProjectScope):
        names |= {name for root in project for name in islice(_nested(database, root), MOST_PROJECTS)}
    several = sorted(names)
    if len(several) > MOST_PROJECTS:
        raise CallError(f"at most {MOST_PROJECTS} projects can be queried at once")
    return Clause(f"runs.project IN ({', '.join('?' * len(several))})", tuple(several)) if several else Clause("1 = 0")


def _nested(database: Database, root: str) -> Iterator[str]:
    """The projects inside of a project, each found by the index."""
    last = label(f"{root}/")
    while (found := database.rows(_NEXT_NESTED, [last, label(f"{root}0")])[0][0]) is not None:
        last = str(found)
        yield last


class RunListQueries:
    """A part of `Store`."""

    _database: Database

    def keys(
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        project: Projects = None,
        **which: Any,
    ) -> list[int]:
        """The same as keys for `with_keys`: a long list is then read in parts."""
        return run_pages.page(self._database, self._filter(query, project, **which), order(sort), limit, offset)

    def count(self, query: str = "", project: Projects = None, **which: Any) -> int:
        """The number of runs that match a query; `which` as for `runs`. Raises CallError for an invalid query."""
        if which.get("unarchived"):  # both counts need only indexes
            return self.count(query, project, **{**which, "unarchived": False}) - self.count_archived(
                query, project, **which
            )
        return run_pages.count(self._database, self._filter(query, project, **which))

    def count_archived(self, query: str = "", project: Projects = None, **which: Any) -> int:
        """The number of matching runs that a list leaves out because they are archived."""
        if mentions(query, "archived"):
            return 0
        wanted = self._filter(query, project, **{**which, "unarchived": False}).each
        sql = f"SELECT count(*) FROM {_ARCHIVED} WHERE runs.key = hidden.hidden_key AND {wanted.sql}"
        return int(self._database.rows(sql, wanted.args)[0][0])

    def grouped(  # noqa: PLR0913, PLR0917 - what a list of groups can be asked for
        self,
        by: Sequence[str],
        columns: Sequence[str] = (),
        query: str = "",
        sort: str = "value",
        limit: int = 100,
        offset: int = 0,
        project: Projects = None,
        **which: Any,
    ) -> tuple[list[GroupedRuns], int]:
        """The matching runs grouped by fields: see `grouped_runs.grouped`."""
        from phalanx.store.grouped_runs import grouped

        wanted = self._filter(query, project, **which).each
        return grouped(self._database, wanted, by, columns, sort, limit, offset)

    def _filter(
        self,
        query: str,
        project: Projects,
        *,
        folded: bool = False,
        unarchived: bool = False,
        user: str = "",
    ) -> RunFilter:
        these = [] if project is None else [of_projects(self._database, project)]
        only = these[0].args[0] if these and len(these[0].args) == 1 else None
        if folded:
            these.append(Clause(_IS_NO_TRIAL))
        if unarchived and not mentions(query, "archived"):
            these.append(Clause(_IS_NOT_ARCHIVED))
        found = terms(query, self._database.lower, user, ascii_lower=self._database.ascii_lower)
        return RunFilter(found, all_of(these) if these else None, only)

    def param_names(self, project: Projects = None, limit: int = 500) -> list[tuple[str, int]]:
        """With the number of runs that have them, most used first."""
        return self._names("params", "name", project, limit)

    def metric_names(self, project: Projects = None, limit: int = 500) -> list[tuple[str, int]]:
        return self._names("summaries", "metric", project, limit)

    def _names(self, table: str, column: str, project: Projects, limit: int) -> list[tuple[str, int]]:
        these = of_projects(self._database, project)
        join = "" if project is None else f" JOIN runs ON runs.key = {table}.run_key WHERE {these.sql}"
        found = self._database.rows(
            f"SELECT {table}.{column}, count(*) FROM {table}{join} GROUP BY {table}.{column} "
            f"ORDER BY count(*) DESC, {table}.{column} LIMIT ?",
            [*these.args, limit],
        )
        return [(str(name), int(count)) for name, count in found]

    def groups(self, project: Projects = None) -> list[RunGroup]:
        """Newest first."""
        these = of_projects(self._database, project)
        rows = self._database.rows(
            f"""SELECT "group", project, status, count(*), min(created_at) FROM runs
            WHERE "group" IS NOT NULL AND {these.sql}
            GROUP BY "group", project, status ORDER BY "group", project, status""",
            these.args,
        )
        found: dict[tuple[str, str], RunGroup] = {}
        for name, owner, status, count, at in rows:
            one = found.setdefault((name, owner), RunGroup(name, owner, {}, utc(at)))
            one.statuses[status] = int(count)
            found[name, owner] = one._replace(created_at=min(one.created_at, utc(at)))
        return sorted(found.values(), key=lambda group: group.created_at, reverse=True)

    def stamps(self, query: str) -> list[tuple[int, *tuple[Any, ...]]]:
        """The key of each matching run, and columns of which one changes when the scheduler has to read it again."""
        wanted = self._filter(query, None).each
        return self._database.rows(f"SELECT {_STAMP} FROM runs WHERE {wanted.sql}", wanted.args)

    def seen_active(self) -> list[RunStamp]:
        return self._seen(f"{_ACTIVE} ORDER BY priority, created_at, key")

    def seen_since(self, at: datetime) -> list[RunStamp]:
        """Runs that changed at this time or later, according to their timestamps."""
        return self._seen("updated_at >= ?", [microseconds(at)])

    def seen_after(self, key: int) -> list[RunStamp]:
        """Runs that were added after the one with this key."""
        return self._seen("key > ?", [key])

    def seen_of(self, run_ids: Iterable[str]) -> list[RunStamp]:
        wanted, found = list(run_ids), []
        for start in range(0, len(wanted), BATCH):
            these = wanted[start : start + BATCH]
            found += self._seen(f"id IN ({', '.join('?' * len(these))})", these)
        return found

    def stamp_of_parts(self, whole_id: str) -> tuple[Any, ...]:
        """Changes when a run of a group or pipeline was added, was removed, or has another status."""
        active = f"sum(CASE WHEN {_ACTIVE} THEN 1 ELSE 0 END)"
        sql = f'SELECT count(*), max(updated_at), sum(attempt), {active} FROM runs WHERE "group" = ?'
        return tuple(self._database.rows(sql, [whole_id])[0])

    def last_key(self) -> int:
        return int(self._database.rows("SELECT coalesce(max(key), 0) FROM runs")[0][0])

    def _seen(self, condition: str, args: Sequence[Any] = ()) -> list[RunStamp]:
        rows = self._database.rows(f"SELECT {_SEEN} FROM runs WHERE {condition}", args)
        return [RunStamp._make([*row[:-1], utc(row[-1])]) for row in rows]

    def latest_facts(
        self, name: str, project: Projects, limit: int, run_id: str | None = None
    ) -> list[tuple[str, str | None, str, Any]]:
        """One fact of the newest runs that have it, or of one run: the run's id, name and project, and the fact."""
        these = of_projects(self._database, project)
        if run_id is not None:
            these = Clause(f"{these.sql} AND runs.id = ?", (*these.args, run_id))
        rows = self._database.rows(
            f"""SELECT runs.id, runs.name, runs.project, facts.text FROM facts JOIN runs ON runs.key = facts.run_key
            WHERE facts.name = ? AND {these.sql} ORDER BY runs.created_at DESC, runs.key DESC LIMIT ?""",
            [name, *these.args, limit],
        )
        return [(run_id, run_name, owner, json.loads(text)) for run_id, run_name, owner, text in rows]

    def facts_of(self, run_ids: Iterable[str], name: str) -> dict[str, Any]:
        """One fact of many runs, by run id; runs without it are omitted."""
        wanted = list(run_ids)
        found: dict[str, Any] = {}
        for start in range(0, len(wanted), BATCH):
            these = wanted[start : start + BATCH]
            rows = self._database.rows(
                f"""SELECT runs.id, facts.text FROM facts JOIN runs ON runs.key = facts.run_key
                WHERE facts.name = ? AND runs.id IN ({", ".join("?" * len(these))})""",
                [name, *these],
            )
            found |= {run_id: json.loads(text) for run_id, text in rows}
        return found

    def statuses_of(self, run_ids: Iterable[str]) -> dict[str, list[StatusChange]]:
        """The status changes of many runs, by run id, oldest first; unknown runs are omitted."""
        wanted = list(run_ids)
        found: dict[str, list[StatusChange]] = {}
        for start in range(0, len(wanted), BATCH):
            these = wanted[start : start + BATCH]
            rows = self._database.rows(
                f"""SELECT runs.id, statuses.number, statuses.attempt, statuses.status, statuses.reason, statuses.at
                FROM statuses JOIN runs ON runs.key = statuses.run_key
                WHERE runs.id IN ({", ".join("?" * len(these))}) ORDER BY statuses.run_key, statuses.number""",
                these,
            )
            for *change, at in rows:
                found.setdefault(change[0], []).append(StatusChange._make([*change, utc(at)]))
        return found
