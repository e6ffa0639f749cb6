"""Runs found on a server: by a query, an id, the beginning of one, or a name."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from phalanx.client import rows
from phalanx.client.transport import NotFound, Transport, joined
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.store.records import Run

PAGE = 500  # runs, models, or lines of a log
MOST_LISTED = 6  # of runs that a word may mean


_ID = re.compile(r"[A-Za-z0-9][\w-]{0,99}\Z", re.ASCII)  # or the beginning of one


class RunLookup:
    """What all parts of `Client` share. Every method may raise RequestRefused and ServerUnreachable."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self._ids: set[str] = set()  # that are known to be ids, and need not be looked up

    def projects(self) -> list[str]:
        return [str(row["name"]) for row in self._wire.get(joined("projects"))["projects"]]

    def runs(
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        project: str | None = None,
    ) -> list[Run]:
        """The runs that a query finds, in the language of `phalanx ps -q`; all of them, unless told how many."""
        return [rows.run_of(row) for row in self.run_rows(query, sort, limit, offset, project)]

    def run_rows(
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = None,
        offset: int = 0,
        project: str | None = None,
    ) -> list[dict[str, Any]]:
        """The same as the server tells them."""
        found: list[dict[str, Any]] = []
        while limit is None or len(found) < limit:
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self._wire.get(
                joined("runs"), q=query, sort=sort, limit=wanted, offset=offset + len(found), project=project
            )["runs"]
            found += page
            if len(page) < wanted:
                break
        return found

    def count(self, query: str = "", project: str | None = None) -> int:
        return int(self._wire.get(joined("runs"), q=query, limit=0, project=project)["count"])

    def run(self, name: str) -> Run:
        """By id, the beginning of one, or a name. Raises CallError unless it is exactly one."""
        return self.details(name).run

    def details(self, name: str) -> rows.Details:
        """The same with all that pages show of it: labels, facts, summaries, statuses, replicas, artifacts."""
        if not name:
            raise CallError("say which run: its id, the beginning of it, or its name")
        if _ID.match(name):
            with suppress(NotFound):
                return rows.details_of(self._wire.get(joined("runs", name)))
        return rows.details_of(self._wire.get(joined("runs", self._id_of(name))))

    def _id_of(self, name: str) -> str:
        from phalanx.store.query import quoted

        found = {run.id: run for run in self.runs(f"name:{quoted(name)}", limit=MOST_LISTED)}
        if _ID.match(name):
            found |= {run.id: run for run in self.runs(f"id:{name}%", limit=MOST_LISTED)}
        if len(found) == 1:
            return next(iter(found))
        if not found:
            raise CallError(f"there is no run `{name[:100]}` on {self._wire.url}: `phalanx ps` lists those there are")
        listed = [f"{run.id} ({run.name or 'no name'}, {run.status})" for run in found.values()]
        more = ", and more" if len(listed) >= MOST_LISTED else ""
        raise CallError(f"`{name[:100]}` can be {', '.join(listed[:5])}{more}: write more of the id")

    def status(self, run_id: str) -> Run:
        """A run of exactly this id as it is now, without all that `details` asks for: to be asked again and again."""
        return rows.run_of(self.status_row(run_id))

    def status_row(self, run_id: str) -> dict[str, Any]:
        """The same as the server tells it, with what it waits for."""
        found = self.run_rows(f'id:"{run_id}"', limit=1)
        if not found:
            raise NotFound(f"there is no run `{run_id}` any more", 404)
        return found[0]

    def _id(self, run: str | Run) -> str:
        if not isinstance(run, str):
            return run.id
        if run in self._ids:
            return run
        found = self.run(run).id
        self._ids.add(found)
        return found
