"""The store: runs and their states. Owns the tables `runs`, `statuses`, `replicas` and `tags`.

`tracked_values`, `run_lists`, `stars` and `dependencies` are parts of it; `query` and `conditions` build the SQL that
selects runs.

It must also run on the SQLite of RHEL 8 (3.26): no RETURNING, no NULLS LAST, at most 999 parameters.
"""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, Self

from phalanx.errors import CallError, StoreError, may_recover
from phalanx.store import filesystems, schema
from phalanx.store.conditions import Comparison, Ordering, selection
from phalanx.store.database import Database, PostgresDatabase, SqliteDatabase
from phalanx.store.dependencies import DependencyQueries
from phalanx.store.records import DONE, STARTED, MetricRange, ReplicaRecord, Run, StatusChange, microseconds, utc
from phalanx.store.run_choice import MOST_LISTED, NO_NAME, choose_run
from phalanx.store.run_lists import RunListQueries, of_projects
from phalanx.store.sql import columns, insertion, label
from phalanx.store.stars import StarQueries
from phalanx.store.tracked_values import PUT_PARAM, PUT_SUMMARY, TrackedValueQueries, param_row, summary_row

_BATCH = 500
_TIMES = frozenset(["created_at", "updated_at", "started_at", "finished_at", "at"])
_WHOLE = frozenset(["id", "description", "reason"])

_INNER = ("tags", "params", "summary", "best")
_RUN_FIELDS = tuple(field for field in Run._fields if field not in _INNER)
_STATUS_FIELDS = StatusChange._fields[1:]  # without `run_id`: these tables have the run's key
_REPLICA_FIELDS = ReplicaRecord._fields[1:]
_KEY = "(SELECT key FROM runs WHERE id = ?)"
TABLES = (
    *("model_events", "aliases", "versions", "models"),
    *("dependencies", "stars", "artifacts", "facts", "labels", "summaries", "params", "tags", "replicas", "statuses"),
    "runs",
)
_IS_DONE = f"status IN ({', '.join(map(repr, DONE))})"
_IS_ACTIVE = _IS_DONE.replace(" IN ", " NOT IN ")  # exactly the condition of the index `runs_active`

_ADD_RUN = insertion("runs", _RUN_FIELDS, "id")
_ADD_STATUS = insertion("statuses", ("run_key", *_STATUS_FIELDS), "run_key, number")
_REPLICA_KEY = "run_key, attempt, role, number, local"
_PUT_REPLICA = insertion("replicas", ("run_key", *_REPLICA_FIELDS), _REPLICA_KEY, update=True)
_PUT_TAG = insertion("tags", ("run_key", "tag", "number"), "run_key, tag")


def _stored(field: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    if field == "peak":
        return json.dumps(dict(value))
    if field == "archived":
        return int(bool(value))
    return label(value) if isinstance(value, str) and field not in _WHOLE else value


def _row(record: Run | StatusChange | ReplicaRecord, fields: Iterable[str]) -> list[Any]:
    return [_stored(field, getattr(record, field)) for field in fields]


def _read(fields: Sequence[str], row: Sequence[Any]) -> Iterator[Any]:
    for field, value in zip(fields, row, strict=True):
        if field in _TIMES and value is not None:
            yield utc(value)
        elif field == "archived":
            yield bool(value)
        else:
            yield json.loads(value) if field == "peak" else value


class Store(TrackedValueQueries, RunListQueries, StarQueries, DependencyQueries):
    """Runs and their data, over one connection: for one thread; must be closed.

    Every method may raise StoreError when the database fails; other exceptions are in the method's docstring. A write
    is atomic; `with store.transaction():` combines many.
    """

    def __init__(self, database: Database, note: str = "") -> None:
        """Over a database whose schema is prepared; `open` is the usual way."""
        self._database = database
        self.note = note

    @classmethod
    def open(cls, home: Path, url: str | None = None) -> Self:
        """The store of a home: its SQLite file, created if missing, or the PostgreSQL database of the URL.

        `note` is set when the file is elsewhere because the home is on a network filesystem. Raises CallError for
        another kind of URL.
        """
        database: Database
        if url:
            if not url.startswith(("postgresql://", "postgres://")):
                raise CallError(f"a database URL starts with `postgresql://`, not `{url.partition(':')[0]}:`")
            database, note = PostgresDatabase(url), ""
        else:
            mounts = filesystems.read_mountinfo(home)
            path, note = filesystems.database_path(home, mounts, os.environ, os.getuid())
            try:
                filesystems.make_private(path.parent, os.getuid())
                database = SqliteDatabase(path)
            except OSError as error:
                message = f"cannot create {path}: {error.strerror or error}"
                raise StoreError(message, transient=may_recover(error)) from error
        with ExitStack() as undo:
            undo.callback(database.close)
            schema.prepare(database)
            undo.pop_all()
        return cls(database, note)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def place(self) -> str:
        """The location of the database, without its password."""
        return self._database.place

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside are committed together, or none of them."""
        return self._database.transaction()

    def add(self, run: Run) -> bool:
        """Add a new run. False: its id exists, and nothing was changed."""
        with self.transaction():
            if not self._database.change(_ADD_RUN, _row(run, _RUN_FIELDS)):
                return False
            key = self._key(run.id)
            self._put_tags(key, run.tags)
            self._database.change_many(PUT_PARAM, [param_row(key, *item) for item in run.params.items()])
            self._database.change_many(PUT_SUMMARY, [summary_row(key, *item) for item in run.summary.items()])
            return True

    def record(self, change: StatusChange) -> bool:
        """Add a status, and set it on the run unless a later one is known. False: it was known, and nothing was
        changed.

        The run's `started_at` is its first start; `finished_at` is the end of its newest attempt, and None before that.
        An archived run that goes on is no longer archived. Raises CallError when the run does not exist.
        """
        at = microseconds(change.at)
        finished, archived, times = "NULL", "0", [at if change.status in STARTED else None]
        if change.status in DONE:
            finished, archived = "CASE WHEN attempt = ? THEN coalesce(finished_at, ?) ELSE ? END", "archived"
            times += [change.attempt, at, at]
        with self.transaction():
            key = self._key(change.run_id)
            if not self._database.change(_ADD_STATUS, [key, *_row(change, _STATUS_FIELDS)]):
                return False
            self._database.change(
                f"""UPDATE runs SET status = ?, reason = ?, attempt = ?, updated_at = ?,
                    started_at = coalesce(started_at, ?), finished_at = {finished}, archived = {archived}
                WHERE key = ? AND NOT EXISTS (SELECT 1 FROM statuses WHERE run_key = ? AND number > ?)""",
                [label(change.status), change.reason, change.attempt, at, *times, key, key, change.number],
            )
            return True

    def put_replicas(self, replicas: Iterable[ReplicaRecord]) -> None:
        """Insert or update replicas. Raises CallError when the run does not exist."""
        with self.transaction():
            rows = [[self._key(replica.run_id), *_row(replica, _REPLICA_FIELDS)] for replica in replicas]
            self._database.change_many(_PUT_REPLICA, rows)

    def update(  # noqa: PLR0913 - each is a column
        self,
        run_id: str,
        *,
        name: str | EllipsisType | None = ...,
        description: str | EllipsisType | None = ...,
        framework: str | EllipsisType | None = ...,
        commit: str | EllipsisType | None = ...,
        priority: int | EllipsisType = ...,
        archived: bool | EllipsisType = ...,
        tags: Iterable[str] | EllipsisType = ...,
        at: datetime | None = None,
    ) -> None:
        """Change the given fields; tags are replaced as a whole. `at`: when they changed; None: now. `updated_at` never
        goes back. Raises CallError when the run does not exist."""
        given: dict[str, Any] = {"name": name, "description": description, "priority": priority}
        given |= {"framework": framework, "commit": commit, "archived": archived}
        changes = {field: _stored(field, value) for field, value in given.items() if value is not ...}
        time = microseconds(at or datetime.now(UTC))
        with self.transaction():
            key = self._key(run_id)
            sets = "".join(f'"{field}" = ?, ' for field in changes)
            self._database.change(
                f"UPDATE runs SET {sets}updated_at = CASE WHEN updated_at < ? THEN ? ELSE updated_at END WHERE key = ?",
                [*changes.values(), time, time, key],
            )
            if tags is not ...:
                self._database.change("DELETE FROM tags WHERE run_key = ?", [key])
                self._put_tags(key, tags)

    def delete(self, run_id: str) -> bool:
        """Remove a run and all its rows. False: it did not exist."""
        return self._database.change("DELETE FROM runs WHERE id = ?", [run_id]) > 0

    def find(self, text: str) -> Run:
        """The run that a user means with an id, a name, or the first characters of an id: see `run_choice`. Raises
        CallError."""
        if not text:
            raise CallError(NO_NAME)
        exact = self._select("SELECT key FROM runs WHERE id = ?", [text])
        if exact:
            return exact[0]
        newest = "SELECT key FROM runs WHERE name = ? ORDER BY created_at DESC, key DESC LIMIT 1"
        begun = f"SELECT key FROM runs WHERE id >= ? AND id < ? ORDER BY id LIMIT {MOST_LISTED}"
        return choose_run(
            text,
            "",
            lambda: self._select(newest, [label(text)]),
            lambda: self._select(begun, [text, text + "\U0010ffff"]),
        )

    def runs(  # noqa: PLR0913 - what a list can be asked for
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = 20,
        offset: int = 0,
        project: str | Collection[str] | None = None,
        *,
        folded: bool = False,
        unarchived: bool = False,
        user: str = "",
    ) -> list[Run]:
        """A page of the runs that match a query (see `phalanx.store.query`); of one project, of several, or of all.
        `folded`: without the trials of groups. `unarchived`: without archived runs, unless the query has `archived`.
        `user`: whose stars count. Raises CallError for an invalid query."""
        return self.with_keys(
            self.keys(query, sort, limit, offset, project, folded=folded, unarchived=unarchived, user=user)
        )

    def search(
        self, comparisons: Iterable[Comparison], orderings: Iterable[Ordering], *, limit: int, offset: int = 0
    ) -> list[Run]:
        """A page of the runs for which all comparisons hold."""
        return self._select(*selection(self._database, comparisons, orderings, limit, offset))

    def active(self) -> list[Run]:
        """Every run that has not ended: highest priority first, then oldest first."""
        return self._select(f"SELECT key FROM runs WHERE {_IS_ACTIVE} ORDER BY priority DESC, created_at, key")

    def statuses(self, run_id: str) -> list[StatusChange]:
        """Oldest first."""
        sql = f"SELECT {columns(_STATUS_FIELDS)} FROM statuses WHERE run_key = {_KEY} ORDER BY number"
        return [StatusChange._make([run_id, *_read(_STATUS_FIELDS, row)]) for row in self._database.rows(sql, [run_id])]

    def replicas(self, run_id: str, attempt: int | None = None) -> list[ReplicaRecord]:
        """By rank, of one attempt; by default the newest that has any."""
        chosen = f"(SELECT max(attempt) FROM replicas WHERE run_key = {_KEY})" if attempt is None else "?"
        found = self._database.rows(
            f"""SELECT {columns(_REPLICA_FIELDS)} FROM replicas WHERE run_key = {_KEY} AND attempt = {chosen}
            ORDER BY rank, role, number, local""",
            [run_id, run_id if attempt is None else attempt],
        )
        return [ReplicaRecord._make([run_id, *_read(_REPLICA_FIELDS, row)]) for row in found]

    def projects(self, project: str | Collection[str] | None = None) -> list[tuple[str, int]]:
        """Every project by name, or only the given ones, and its number of runs."""
        these = of_projects(self._database, project)
        found = self._database.rows(
            f"SELECT project, count(*) FROM runs WHERE {these.sql} GROUP BY project ORDER BY project", these.args
        )
        return [(project, count) for project, count in found]

    def active_by_project(self) -> dict[str, int]:
        """The number of runs that have not ended, of each project that has some."""
        return dict(self._database.rows(f"SELECT project, count(*) FROM runs WHERE {_IS_ACTIVE} GROUP BY project"))

    def project_of(self, run_id: str) -> str | None:
        """Of the run with exactly this id; None when it does not exist."""
        return self._column("project", run_id)

    def status_of(self, run_id: str) -> str | None:
        return self._column("status", run_id)

    def _column(self, name: str, run_id: str) -> str | None:
        found = self._database.rows(f"SELECT {name} FROM runs WHERE id = ?", [run_id])
        return str(found[0][0]) if found else None

    def data_version(self) -> str:
        """Changes when another store has changed data. For a store that changes nothing itself."""
        return self._database.data_version()

    def ids(self) -> set[str]:
        return {run_id for (run_id,) in self._database.rows("SELECT id FROM runs")}

    def check(self) -> list[str]:
        """Problems in the data, for `doctor`; empty when there are none. Reads everything."""
        later = "SELECT 1 FROM statuses t WHERE t.run_key = s.run_key AND t.number > s.number"
        last = f"SELECT s.status FROM statuses s WHERE s.run_key = runs.key AND NOT EXISTS ({later})"
        found = self._database.problems()
        for condition, fault in (
            (f"{_IS_DONE} AND finished_at IS NULL", "finished, but without an end time"),
            (f"{_IS_ACTIVE} AND finished_at IS NOT NULL", "not finished, but with an end time"),
            (f"status <> ({last})", "listed with another status than the last recorded one"),
        ):
            rows = self._database.rows(f"SELECT id FROM runs WHERE {condition} ORDER BY created_at, key")
            if rows:
                listed = ", ".join(run_id for (run_id,) in rows[:3]) + (", …" if len(rows) > 3 else "")
                found.append(f"{len(rows)} {'run is' if len(rows) == 1 else 'runs are'} {fault}: {listed}")
        return found

    def clear(self) -> None:
        """Remove everything, including rows without a run; for rebuilding the database from the folders."""
        with self._database.transaction():
            for table in TABLES:
                self._database.change(f"DELETE FROM {table}")

    def _put_tags(self, key: int, tags: Iterable[str]) -> None:
        self._database.change_many(_PUT_TAG, [(key, label(tag), place) for place, tag in enumerate(tags)])

    def _select(self, sql: str, args: Iterable[Any] = ()) -> list[Run]:
        """The runs whose keys a statement selects, in its order."""
        return self.with_keys([row[0] for row in self._database.rows(sql, args)])

    def with_keys(self, keys: Sequence[int]) -> list[Run]:
        """The runs with these keys, in this order; removed ones are left out."""
        found = dict(self.by_key(keys))
        return [found[key] for key in keys if key in found]

    def by_key(self, keys: Sequence[int]) -> Iterator[tuple[int, Run]]:
        """The same with their keys, in any order."""
        for start in range(0, len(keys), _BATCH):
            yield from self._load(keys[start : start + _BATCH])

    def _load(self, keys: Sequence[int]) -> Iterator[tuple[int, Run]]:
        these = f"IN ({', '.join('?' * len(keys))})"
        tags: defaultdict[int, list[str]] = defaultdict(list)
        params: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        summary: defaultdict[int, dict[str, float]] = defaultdict(dict)
        best: defaultdict[int, dict[str, MetricRange]] = defaultdict(dict)
        rows = self._database.rows
        for key, tag in rows(f"SELECT run_key, tag FROM tags WHERE run_key {these} ORDER BY number", keys):
            tags[key].append(tag)
        for key, name, is_json, text in rows(
            f"SELECT run_key, name, is_json, text FROM params WHERE run_key {these} ORDER BY name", keys
        ):
            params[key][name] = json.loads(text) if is_json else text
        for key, metric, value, low, high in rows(
            f'SELECT run_key, metric, value, "min", "max" FROM summaries WHERE run_key {these} ORDER BY metric', keys
        ):
            summary[key][metric] = math.nan if value is None else value
            if low is not None:
                best[key][metric] = MetricRange(low, high)
        for key, *row in rows(f"SELECT key, {columns(_RUN_FIELDS)} FROM runs WHERE key {these}", keys):
            own: dict[str, Any] = dict(zip(_RUN_FIELDS, _read(_RUN_FIELDS, row), strict=True))
            inner: Any = (tuple(tags[key]), params[key], summary[key], best[key])
            yield key, Run(**own, **dict(zip(_INNER, inner, strict=True)))
