"""Lists over many runs: names of params and metrics, groups, changes. Reads runs, params, summaries and facts."""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from phalanx.errors import CallError
from phalanx.store.database import Database
from phalanx.store.query import Clause
from phalanx.store.records import DONE, StatusChange, microseconds, utc

BATCH = 500
MOST_PROJECTS = 400  # in addition to a query's parameters: at most 999
_SEEN = "key, id, project, status, attempt, updated_at"
_ACTIVE = f"status NOT IN ({', '.join(map(repr, DONE))})"

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


def of_projects(project: Projects) -> Clause:
    """Condition for the runs of one project or several. Raises CallError when there are too many for a statement."""
    if project is None:
        return Clause("1 = 1")
    several = sorted({project} if isinstance(project, str) else set(project))
    if len(several) > MOST_PROJECTS:
        raise CallError(f"at most {MOST_PROJECTS} projects can be queried at once")
    return Clause(f"runs.project IN ({', '.join('?' * len(several))})", tuple(several)) if several else Clause("1 = 0")


class RunListQueries:
    """A part of `Store`."""

    _database: Database

    def param_names(self, project: Projects = None, limit: int = 500) -> list[tuple[str, int]]:
        """With the number of runs that have them, most used first."""
        return self._names("params", "name", project, limit)

    def metric_names(self, project: Projects = None, limit: int = 500) -> list[tuple[str, int]]:
        return self._names("summaries", "metric", project, limit)

    def _names(self, table: str, column: str, project: Projects, limit: int) -> list[tuple[str, int]]:
        these = of_projects(project)
        join = "" if project is None else f" JOIN runs ON runs.key = {table}.run_key WHERE {these.sql}"
        found = self._database.rows(
            f"SELECT {table}.{column}, count(*) FROM {table}{join} GROUP BY {table}.{column} "
            f"ORDER BY count(*) DESC, {table}.{column} LIMIT ?",
            [*these.args, limit],
        )
        return [(str(name), int(count)) for name, count in found]

    def groups(self, project: Projects = None) -> list[RunGroup]:
        """Newest first."""
        these = of_projects(project)
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

    def last_key(self) -> int:
        return int(self._database.rows("SELECT coalesce(max(key), 0) FROM runs")[0][0])

    def _seen(self, condition: str, args: Sequence[Any] = ()) -> list[RunStamp]:
        rows = self._database.rows(f"SELECT {_SEEN} FROM runs WHERE {condition}", args)
        return [RunStamp._make([*row[:-1], utc(row[-1])]) for row in rows]

    def latest_facts(
        self, name: str, project: Projects, limit: int, run_id: str | None = None
    ) -> list[tuple[str, str | None, str, Any]]:
        """One fact of the newest runs that have it, or of one run: the run's id, name and project, and the fact."""
        these = of_projects(project)
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
