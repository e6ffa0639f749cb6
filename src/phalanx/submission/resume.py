"""Requests to resume a finished run: the next attempt of the same run, with the same outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from phalanx import run_paths
from phalanx.artifacts.downloads import restore
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.group_folder import GroupFolder
from phalanx.home.home import Home
from phalanx.store import Run
from phalanx.store.kinds import GROUP, PIPELINE
from phalanx.store.statuses import Status
from phalanx.submission.checks import require_engine_of
from phalanx.tracking.external_folder import BACKEND as OUTSIDE


def require_managed(run: Run) -> None:
    """Raises CallError for a run that is only tracked."""
    if run.backend == OUTSIDE:
        raise CallError(f"run {run.id} was tracked, not started, by Phalanx: run its script again yourself")


def require_working(home: Home, run: Run) -> Path:
    """The folder in which the replicas of a run start. Raises CallError if it no longer exists."""
    working = home.run(run.id).working()
    if working is None:
        raise CallError(f"run {run.id} came without its code: run its file yourself, in the folder of the code")
    if not working.is_dir():
        raise CallError(
            f"the working folder of run {run.id} no longer exists: {working}; create it, or run the file elsewhere"
        )
    return working


def request_resume(home: Home, run: Run, environment: Mapping[str, str], by: str = "its user") -> None:
    """Request the next attempt from the scheduler. Raises CallError if the run is still active, its working folder is
    gone, or it cannot be submitted from this machine."""
    require_managed(run)
    if run.group is not None and GroupFolder(home.run(run.group).path).is_packed:
        raise CallError(
            f"run {run.id} belongs to the packed group {run.group}: `phalanx resume {run.group}` runs what failed again"
        )
    if run.kind in (GROUP, PIPELINE):
        if not run.is_done and run.status != Status.WARNING:
            raise _still_active(run)
        GroupFolder(home.run(run.id).path).ask("rerun", by=by)  # trials or ops that failed or were stopped
        if run.status == Status.WARNING:
            return  # it was only paused
    queue_resume(home, run, environment, by)


def queue_resume(home: Home, run: Run, environment: Mapping[str, str], by: str = "its user") -> None:
    """Request that a finished run or group goes on. Raises CallError."""
    if not run.is_done:
        raise _still_active(run)
    require_working(home, run)
    require_engine_of(home, run, environment)
    restore(home, run.id)
    home.keep_environment(run.id, environment)
    write_atomic(home.run(run.id).path / run_paths.RESUME, json.dumps({"by": by}).encode())
    (home.resumes / run.id).touch(mode=0o600)


def _still_active(run: Run) -> CallError:
    return CallError(f"run {run.id} is still active: its status is {run.status}")
