"""Ends external runs that no other process can end: children whose parent has ended, and runs that should stop but
whose process cannot be seen."""

from __future__ import annotations

import time
from pathlib import Path

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.ends import Cause, cause_of
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.naming import PARENT
from phalanx.store import Run, Store
from phalanx.tracking import external_folder

EVERY_S = 1.0
ALIVE = f"backend:{external_folder.BACKEND}, status:running|starting|unknown"


class ExternalRunSweeper:
    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.next_at = 0.0

    def turn(self) -> None:
        """Checks periodically; the scheduler processes the ends that it writes."""
        if time.monotonic() < self.next_at:
            return
        for run in self.store.runs(ALIVE, limit=None):
            self._stop(run)
            self._end_with_parent(run)
        self.next_at = time.monotonic() + EVERY_S

    def _attempt(self, run: Run) -> Path:
        return self.home.run(run.id).path / run_paths.attempt_folder(external_folder.REPLICA, max(1, run.attempt))

    def _stop(self, run: Run) -> None:
        reason = self.home.run(run.id).stop_reason()
        if reason is not None and not _has_process(self._attempt(run)):
            external_folder.write_end(str(self._attempt(run)), Cause.STOPPED, reason, run.created_at.timestamp())

    def _end_with_parent(self, run: Run) -> None:
        parent_id = self.store.labels(run.id).get(PARENT)
        try:
            parent = self.store.find(parent_id) if parent_id else None
        except CallError:
            return  # removed: then the run ends by its silence timeout
        if parent is not None and parent.is_done:
            message = f"its parent, run {parent.id}, has ended"
            external_folder.write_end(
                str(self._attempt(run)), cause_of(parent.status), message, run.created_at.timestamp()
            )


def _has_process(attempt: Path) -> bool:
    found = read_json(attempt / run_paths.AGENT)
    return isinstance(found, dict) and bool(found.get("pid"))
