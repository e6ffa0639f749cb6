"""The lifecycle of runs that other processes execute and report to the server: files, restart and end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import make_private, write_atomic
from phalanx.ends import cause_of
from phalanx.errors import disk_fault
from phalanx.ingest import external_runs
from phalanx.ingest.adoption import add_to_store
from phalanx.server.context import Context
from phalanx.server.http.responses import RequestError
from phalanx.store import Run, StatusChange
from phalanx.tracking import external_folder
from phalanx.tracking.external_folder import BACKEND, REPLICA

SETTLE_S = 3.0  # how long a response waits for the scheduler to process an end
LOOK_S = 0.005


def create(
    here: Context, about: external_folder.Description, labels: Mapping[str, str], created_at: float | None, **more: Any
) -> Run:
    """Create an external, active run and its row. `more`: its id, and its maximum silence. Raises CallError."""
    run_id = more.get("run_id") or external_folder.new_id()
    watcher = {"pid": 0, "started": 0, "boot": "", "host": "", "patience_s": more["patience_s"], "is_agent": False}
    # A replica without a command has no process to wait for: this one names its source instead.
    about = about._replace(argv=(about.source,))
    try:
        try:
            external_folder.create(str(here.home.path), about, run_id, created_at, watcher)
        except FileNotFoundError:  # the scheduler was faster and has already removed the arrival file
            if not here.home.run(run_id).path.is_dir():
                raise
        if labels:
            attempt = Path(external_folder.attempt_folder(str(here.home.run(run_id).path)))
            external_runs.append_event(attempt, "server", {"at": created_at, "kind": "labels", "values": dict(labels)})
    except OSError as fault:
        raise disk_fault(f"the run cannot be kept in {here.home.runs}", fault) from None
    run = external_runs.adopt(here.home, here.store, run_id)
    if labels:
        here.store.put_labels(run.id, labels)
    return run


def check(run: Run) -> Run:
    """Raises RequestError for a run that Phalanx itself started: the scheduler detects its end."""
    if run.backend != BACKEND:
        raise RequestError(409, f"run {run.id} was started by Phalanx, which detects its end itself")
    return run


def place(here: Context, run: Run) -> Path:
    """The folder of its current attempt, for what the server writes about the run."""
    return here.home.run(run.id).path / run_paths.attempt_folder(REPLICA, max(1, run.attempt))


def heartbeat(here: Context, run: Run) -> None:
    """The modification time of the watcher's file is the last sign of life."""
    with suppress(OSError):
        os.utime(place(here, run) / run_paths.AGENT)


def finish(here: Context, run: Run, status: str, reason: str, at: float | None) -> Run:
    """Record the end and wait until the scheduler has processed it. Idempotent. Raises RequestError."""
    if run.is_done:
        return run
    began = (run.started_at or run.created_at).timestamp()
    try:
        external_folder.write_end(str(place(here, run)), cause_of(status), reason or status, began, at)
    except OSError as fault:
        raise RequestError(507, f"cannot store the end of run {run.id}: {fault}") from None
    return wait_finished(here, run)


def wait_finished(here: Context, run: Run) -> Run:
    deadline = time.monotonic() + SETTLE_S
    while not run.is_done and time.monotonic() < deadline:
        here.wake()
        time.sleep(LOOK_S)
        run = here.find(run.id)
    return run


def reopen(here: Context, run: Run) -> Run:
    """Continue a finished run as its next attempt. The caller must hold the run's writer."""
    if not run.is_done:
        return run
    folder, attempt = here.home.run(run.id), run.attempt + 1
    replica_folder = folder.path / run_paths.attempt_folder(REPLICA, attempt)
    before = folder.path / run_paths.attempt_folder(REPLICA, run.attempt) / run_paths.AGENT
    make_private(replica_folder, folder.path)
    try:
        watcher = json.loads(before.read_bytes())
    except (OSError, ValueError):
        watcher = {"pid": 0, "started": 0, "boot": "", "host": "", "patience_s": 86_400.0, "is_agent": False}
    write_atomic(replica_folder / run_paths.AGENT, json.dumps(watcher).encode())
    now, number = datetime.now(UTC), len(folder.history())
    folder.append(StatusChange(run.id, number + 1, run.attempt, "resuming", "restarted by its client", now))
    folder.append(StatusChange(run.id, number + 2, attempt, "running", "under way", now))
    add_to_store(here.store, folder, run)
    return here.find(run.id)
