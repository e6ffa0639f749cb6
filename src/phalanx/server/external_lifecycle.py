"""The lifecycle of runs that other processes execute and report to the server: files, restart and end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.ends import cause_of
from phalanx.errors import disk_fault
from phalanx.ingest import external_runs
from phalanx.ingest.adoption import add_to_store
from phalanx.server.context import Context
from phalanx.server.http.responses import RequestError
from phalanx.store import Run
from phalanx.submission.checks import check_name
from phalanx.tracking import external_folder
from phalanx.tracking.external_folder import BACKEND, REPLICA

SETTLE_S = 3.0  # how long a response waits for the scheduler to process an end
LOOK_S = 0.005


def create(
    here: Context, about: external_folder.Description, labels: Mapping[str, str], created_at: float | None, **more: Any
) -> Run:
    """Create an external, active run and its row. `more`: its id, its maximum silence, and the session of its client.
    Raises CallError."""
    _check_names(about, labels)
    run_id = more.get("run_id") or external_folder.new_id()
    watcher = _watcher(more["patience_s"], more.get("session"))
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


def _check_names(about: external_folder.Description, labels: Iterable[str]) -> None:
    """Raises CallError."""
    for field in ("name", "user", "group"):
        check_name(field, getattr(about, field) or "")
    for field, names in {"tags": about.tags, "params": about.params, "labels": labels}.items():
        for name in names:
            check_name(field, name)


def _watcher(patience_s: float, session: str | None = None) -> dict[str, Any]:
    """`agent.json` of a process that cannot be seen from here. A session is one start of a client."""
    watcher = {"pid": 0, "started": 0, "boot": "", "host": "", "patience_s": patience_s, "is_agent": False}
    return watcher if session is None else {**watcher, "session": session}


def attempt_of(here: Context, run: Run, session: str, *, may_resume: bool, patience_s: float) -> int:
    """The attempt of a client's session: the one that it began before, or the next one. Raises RequestError."""
    with here.run_writers.of(run.id):
        run = here.find(run.id)
        for attempt in range(run.attempt, 0, -1):
            folder = here.home.run(run.id).path / run_paths.attempt_folder(REPLICA, attempt)
            watcher = read_json(folder / run_paths.AGENT)
            if isinstance(watcher, dict) and watcher.get("session") == session:
                return attempt
        if not may_resume:
            raise RequestError(409, f"the run id `{run.id}` is already used", "continue it with `resume`: `allow`")
        return _begin_attempt(here, check(run), _watcher(patience_s, session)).attempt


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
    watcher = read_json(here.home.run(run.id).path / run_paths.attempt_folder(REPLICA, run.attempt) / run_paths.AGENT)
    return _begin_attempt(here, run, watcher if isinstance(watcher, dict) else _watcher(86_400.0))


def _begin_attempt(here: Context, run: Run, watcher: Mapping[str, Any]) -> Run:
    folder = here.home.run(run.id)
    try:
        external_folder.begin_attempt(str(folder.path), "restarted by its client", watcher)
    except (OSError, ValueError) as fault:
        raise RequestError(507, f"run {run.id} cannot be continued: {fault}") from None
    add_to_store(here.store, folder, run)
    return here.find(run.id)
