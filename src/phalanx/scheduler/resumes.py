"""Applies requests to resume runs."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from phalanx import run_paths
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.ingest.adoption import open_dependencies
from phalanx.store import Run, StatusChange, Store
from phalanx.store.statuses import Status


def apply_requests(home: Home, store: Store) -> None:
    """Queue the next attempt, with the same outputs, of each run with a request to resume. Only the scheduler changes
    statuses."""
    for run_id in home.asked_to_resume():
        with suppress(CallError):  # removed meanwhile
            run = store.find(run_id)
            if run.is_done:
                by = _asked_by(home.run(run_id).path / run_paths.RESUME)
                queue_next_attempt(home, store, run, f"resumed by {by}")
        (home.resumes / run_id).unlink(missing_ok=True)


def _asked_by(file: Path) -> str:
    try:
        return str(json.loads(file.read_bytes())["by"])
    except (OSError, ValueError, LookupError, TypeError):
        return "its user"


def queue_next_attempt(home: Home, store: Store, run: Run, reason: str) -> None:
    """Queue the next attempt of a finished run, with the same outputs."""
    folder = home.run(run.id)
    folder.stop_file.unlink(missing_ok=True)
    number = len(folder.history()) + 1
    change = StatusChange(run.id, number, run.attempt, Status.RESUMING, reason[:400], datetime.now(UTC))
    folder.append(change)
    with store.transaction():
        store.record(change)
        open_dependencies(store, folder, run._replace(status=change.status))
