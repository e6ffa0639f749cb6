"""Saved views of the table of runs, personal and shared, in <home>/views.json.

They are few, so the file is read as a whole; changes by another server of the home are visible on the next access.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.home.record_file import RecordFile
from phalanx.server.auth.identities import ALL, Identity, Role
from phalanx.server.http.responses import RequestError

MOST_OWN = 200  # views of one user
MOST = 5_000


class SavedView(NamedTuple):
    """`project`: None for all projects. `updated_at`: seconds since the epoch. The rest is as in the page's URL."""

    id: str
    name: str
    project: str | None
    user: str
    shared: bool
    q: str
    sort: str
    columns: str
    by: str
    updated_at: str


def _decoded(rows: Sequence[dict[str, Any]]) -> tuple[SavedView, ...]:
    return tuple(SavedView(**row) for row in rows)


class SavedViews:
    def __init__(self, home: Path) -> None:
        self._kept: RecordFile[tuple[SavedView, ...]] = RecordFile(home / "views.json", "views", _decoded, ())
        self._lock = threading.Lock()

    def visible(self, caller: Identity, project: str | None = None) -> list[SavedView]:
        """The caller's own views and those shared with the caller, by name; of a project, with those of all."""
        with self._lock:
            rows = self._kept.rows()
        found = [view for view in rows if view.user == caller.name or (view.shared and _may_see(caller, view.project))]
        wanted = [view for view in found if project is None or view.project in (None, project)]
        return sorted(wanted, key=lambda view: (view.name.casefold(), view.shared, view.id))

    def save(self, caller: Identity, view: SavedView) -> SavedView:
        """Add a view; one of the same name, project and kind is replaced. Raises RequestError."""
        with self._lock, self._kept.alone():
            rows = list(self._kept.rows())
            same = [row for row in rows if _place(row) == _place(view) and (view.shared or row.user == view.user)]
            for row in same:
                _check_may_change(caller, row)
            own = sum(row.user == view.user for row in rows)
            if not same and (own >= MOST_OWN or len(rows) >= MOST):
                most = MOST_OWN if own >= MOST_OWN else MOST
                raise RequestError(409, f"there are already {most:,} saved views", "delete those that are not used")
            kept = view._replace(
                id=same[0].id if same else secrets.token_hex(6), updated_at=datetime.now(UTC).isoformat()
            )
            self._kept.write([row._asdict() for row in (*(row for row in rows if row not in same), kept)])
        return kept

    def remove(self, caller: Identity, view_id: str) -> None:
        """Raises RequestError for a view that the caller does not see or may not remove."""
        with self._lock, self._kept.alone():
            rows = self._kept.rows()
            found = next((row for row in rows if row.id == view_id), None)
            if found is None or (found.user != caller.name and not (found.shared and _may_see(caller, found.project))):
                raise RequestError(404, f"there is no view `{view_id[:100]}`", "GET /api/v1/views lists all views")
            _check_may_change(caller, found)
            self._kept.write([row._asdict() for row in rows if row.id != view_id])


def _place(view: SavedView) -> tuple[str, str | None, bool]:
    return view.name, view.project, view.shared


def _may_see(caller: Identity, project: str | None) -> bool:
    return project is None or caller.has(Role.VIEWER, project)


def _check_may_change(caller: Identity, view: SavedView) -> None:
    """The author, and admins of the project. Raises RequestError."""
    if view.user != caller.name and not caller.has(Role.ADMIN, view.project or ALL):
        raise RequestError(403, f"the view `{view.name}` was saved by `{view.user}`", "save yours under another name")
