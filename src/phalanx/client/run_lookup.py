"""Finds runs on a server: by a query, an id, a name, or the first characters of an id."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from phalanx.client import rows
from phalanx.client.run_list import RunList
from phalanx.client.transport import NotFound, Transport, joined
from phalanx.errors import CallError
from phalanx.store.run_choice import MOST_LISTED, NO_NAME, choose_run

if TYPE_CHECKING:
    from phalanx.store.records import Run


_ID = re.compile(r"[A-Za-z0-9][\w-]{0,99}\Z", re.ASCII)  # an id or the start of one


class RunLookup:
    """What all parts of `Client` share. Every method may raise RequestRefused and ServerUnreachable."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self._ids: set[str] = set()  # known ids, which need no lookup

    def projects(self) -> list[str]:
        return [str(row["name"]) for row in self._wire.rows(joined("projects"), "projects")]

    def runs(
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        project: str | None = None,
    ) -> RunList[Run]:
        """The runs that match a query, written as for `phalanx ps -q`; all of them unless `limit` is set. Archived runs
        are left out unless the query has `archived:true`. `runs(…).frame()` is a table of them."""
        found = self.run_rows(query, sort, limit, offset, project)
        return RunList(map(rows.run_of, found), lambda run: run)

    def run_rows(  # noqa: PLR0913 - what a list can be asked for
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        project: str | None = None,
        *,
        archived: bool = False,
    ) -> list[dict[str, Any]]:
        """The same as rows of the REST API. `archived`: also archived runs."""
        params = {"q": query, "sort": sort, "project": project, "archived": archived or None}
        return self._wire.rows(joined("runs"), "runs", limit, offset, **params)

    def count(self, query: str = "", project: str | None = None, *, archived: bool = False) -> int:
        return int(self.counts(query, project, archived=archived)["count"])

    def counts(self, query: str = "", project: str | None = None, *, archived: bool = False) -> dict[str, Any]:
        """The `count` of the matching runs, and how many more are `archived`."""
        params = {"q": query, "project": project, "archived": archived or None}
        return dict(self._wire.get(joined("runs"), limit=0, **params))

    def run(self, name: str) -> Run:
        """The run with an id, a name (the newest of several) or the first characters of an id. Raises CallError if
        there is none, or several ids begin like that."""
        return self.details(name).run

    def details(self, name: str) -> rows.Details:
        """The same with labels, facts, summaries, statuses, replicas and artifacts."""
        if not name:
            raise CallError(NO_NAME)
        if _ID.match(name):
            with suppress(NotFound):
                return rows.details_of(self._wire.get(joined("runs", name)))
        return rows.details_of(self._wire.get(joined("runs", self._id_of(name))))

    def _id_of(self, name: str) -> str:
        from phalanx.store.query import quoted

        return choose_run(
            name,
            f" on {self._wire.url}",
            lambda: self._any(f"name:{quoted(name)}", 1),
            lambda: self._any(f"id:{name}%", MOST_LISTED) if _ID.match(name) else [],
        ).id

    def _any(self, query: str, limit: int) -> list[Run]:
        """Archived runs are found by name, too."""
        return [rows.run_of(row) for row in self.run_rows(query, limit=limit, archived=True)]

    def status(self, run_id: str) -> Run:
        """The run with exactly this id, without its details: cheap enough for polling."""
        return rows.run_of(self.status_row(run_id))

    def status_row(self, run_id: str) -> dict[str, Any]:
        """The same as a row of the REST API, with `waits_for`."""
        found = self.run_rows(f'id:"{run_id}"', limit=1, archived=True)
        if not found:
            raise NotFound(f"run `{run_id}` no longer exists", 404)
        return found[0]

    def _id(self, run: str | Run) -> str:
        if not isinstance(run, str):
            return run.id
        if run in self._ids:
            return run
        found = self.run(run).id
        self._ids.add(found)
        return found
