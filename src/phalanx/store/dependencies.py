"""Open dependencies between runs. Owns the table `dependencies`.

A row is removed once its condition holds: a run without rows may start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from phalanx.store.database import Database
from phalanx.store.records import DONE

_OPEN = """INSERT INTO dependencies (run_key, upstream, condition) SELECT key, ?, ? FROM runs WHERE id = ?
    ON CONFLICT (run_key, upstream, condition) DO NOTHING"""
_CLOSE = "DELETE FROM dependencies WHERE run_key = (SELECT key FROM runs WHERE id = ?)"
_IS_WAITING = "(runs.status IN ('created', 'resuming', 'warning') OR (runs.status = 'building' AND runs.attempt = 0))"
_IS_STARTED = "(other.status IN ('building', 'scheduled', 'starting', 'running') AND other.attempt > 0)"
_IS_DONE = f"other.status IN ({', '.join(map(repr, DONE))})"


class OpenDependency(NamedTuple):
    run_id: str
    upstream: str  # the id of the run that it waits for
    condition: str
    status: str | None  # of that run; None if it does not exist


class DependencyQueries:
    """A part of `Store`."""

    _database: Database

    def open_dependencies(self, run_id: str, dependencies: Iterable[tuple[str, str]]) -> None:
        """Let a run wait for others: pairs of an id and a condition."""
        self._database.change_many(_OPEN, [(upstream, str(condition), run_id) for upstream, condition in dependencies])

    def close_dependencies(self, run_id: str, upstream: str | None = None) -> None:
        """Remove the dependencies of a run on another one, or on all others."""
        if upstream is None:
            self._database.change(_CLOSE, [run_id])
        else:
            self._database.change(f"{_CLOSE} AND upstream = ?", [run_id, upstream])

    def decided_dependencies(self) -> list[OpenDependency]:
        """Open dependencies on runs that have ended or do not exist."""
        return self._dependencies(f"WHERE other.id IS NULL OR {_IS_DONE}")

    def dependencies_of_started(self) -> list[OpenDependency]:
        """Open dependencies of runs that are not queued here: they wait in an engine, or have started."""
        return self._dependencies(f"WHERE NOT {_IS_WAITING}")

    def runs_after_started(self, backend: str) -> list[str]:
        """The ids of the runs of a backend that wait only for runs of this backend that have been started."""
        rows = self._database.rows(
            f"""SELECT runs.id FROM dependencies JOIN runs ON runs.key = dependencies.run_key
            LEFT JOIN runs AS other ON other.id = dependencies.upstream
            WHERE runs.backend = ? AND {_IS_WAITING} GROUP BY runs.id, runs.key
            HAVING COUNT(*) = SUM(CASE WHEN other.backend = ? AND {_IS_STARTED} THEN 1 ELSE 0 END)
            ORDER BY runs.key""",  # noqa: S608 - constants
            [backend, backend],
        )
        return [str(row[0]) for row in rows]

    def open_dependencies_of(self, run_id: str) -> list[OpenDependency]:
        return self._dependencies("WHERE runs.id = ?", [run_id])

    def blocked(self) -> set[str]:
        """The ids of the runs that wait for others."""
        return {dependency.run_id for dependency in self._dependencies("")}

    def _dependencies(self, condition: str, args: Iterable[str] = ()) -> list[OpenDependency]:
        rows = self._database.rows(
            f"""SELECT runs.id, dependencies.upstream, dependencies.condition, other.status
            FROM dependencies JOIN runs ON runs.key = dependencies.run_key
            LEFT JOIN runs AS other ON other.id = dependencies.upstream {condition}
            ORDER BY dependencies.run_key, dependencies.upstream""",  # noqa: S608 - constants
            list(args),
        )
        return [OpenDependency._make(row) for row in rows]
