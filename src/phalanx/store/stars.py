"""Stars: the runs that users have marked for themselves. Owns the table `stars`, an index of the home's files."""

# ruff: noqa: S608 - SQL is built only from constants of this package; user input is passed as parameters

from __future__ import annotations

from collections.abc import Iterable

from phalanx.store.database import Database
from phalanx.store.run_lists import Projects, of_projects
from phalanx.store.sql import insertion, label

_ADD = insertion("stars", ("user", "run_key"), '"user", run_key')
_REMOVE = 'DELETE FROM stars WHERE "user" = ? AND run_key = ?'


class StarQueries:
    """A part of `Store`."""

    _database: Database

    def change_stars(self, user: str, run_ids: Iterable[str], *, is_starred: bool) -> None:
        """Add or remove stars; unknown runs are left out."""
        with self._database.transaction():
            found = (self._database.rows("SELECT key FROM runs WHERE id = ?", [run_id]) for run_id in run_ids)
            rows = [(label(user), row[0]) for keys in found for row in keys]
            self._database.change_many(_ADD if is_starred else _REMOVE, rows)

    def all_starred(self) -> list[str]:
        """The ids of the runs that any user has starred."""
        found = self._database.rows("SELECT DISTINCT runs.id FROM stars JOIN runs ON runs.key = stars.run_key")
        return [str(run_id) for (run_id,) in found]

    def starred(self, user: str, project: Projects = None) -> list[str]:
        """The ids of the runs that a user has starred, newest first; of one project, of several, or of all."""
        these = of_projects(self._database, project)
        found = self._database.rows(
            f"""SELECT runs.id FROM stars JOIN runs ON runs.key = stars.run_key
            WHERE stars."user" = ? AND {these.sql} ORDER BY runs.created_at DESC, runs.key DESC""",
            [label(user), *these.args],
        )
        return [str(run_id) for (run_id,) in found]
