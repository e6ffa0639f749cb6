"""Runs that are over and shall go on: the next attempt of the same run, with the same outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from phalanx.backends.attempts import write_whole
from phalanx.errors import CallError
from phalanx.scheduler.home import Home
from phalanx.scheduler.preflight import require_engine_of
from phalanx.scheduler.statuses import Status
from phalanx.scheduler.taking import restore
from phalanx.store import Run, StatusChange, Store
from phalanx.tracking.folders import BACKEND as OUTSIDE

ASKED = "resume.json"  # in a run's folder: who asked


def must_be_ours(run: Run) -> None:
    """Raises CallError for a run that is only tracked."""
    if run.backend == OUTSIDE:
        raise CallError(f"run {run.id} was tracked, not started, by Phalanx: start its script again yourself")


def ask_to_resume(home: Home, run: Run, environment: Mapping[str, str], by: str = "its user") -> None:
    """Leave word for whoever schedules. Raises CallError when the run is not over, or cannot be submitted from here."""
    must_be_ours(run)
    if not run.is_done:
        raise CallError(f"run {run.id} is not over: it is {run.status}")
    require_engine_of(home, run, environment)
    restore(home, run.id)
    home.keep_environment(run.id, environment)
    write_whole(home.run(run.id).path / ASKED, json.dumps({"by": by}).encode())
    (home.resumes / run.id).touch(mode=0o600)


def heed_resumes(home: Home, store: Store) -> None:
    """The next attempt, with the same outputs, of each run that somebody asked to go on. Only whoever schedules may
    say so."""
    for run_id in home.asked_to_resume():
        with suppress(CallError):  # removed meanwhile
            run = store.find(run_id)
            if run.is_done:
                _resume(home, store, run, _asked_by(home.run(run_id).path / ASKED))
        (home.resumes / run_id).unlink(missing_ok=True)


def _asked_by(file: Path) -> str:
    try:
        return str(json.loads(file.read_bytes())["by"])
    except (OSError, ValueError, LookupError, TypeError):
        return "its user"


def _resume(home: Home, store: Store, run: Run, by: str) -> None:
    folder = home.run(run.id)
    folder.stop_file.unlink(missing_ok=True)
    number = len(folder.history()) + 1
    change = StatusChange(run.id, number, run.attempt, Status.RESUMING, f"resumed by {by}", datetime.now(UTC))
    folder.append(change)
    store.record(change)
