"""Runs that Phalanx stores but did not start: from clients of the server, and imported ones."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.ends import cause_of
from phalanx.errors import CallError, disk_fault
from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.ingest.adoption import add_to_store
from phalanx.ingest.indexer import RunIndexer
from phalanx.spool import Writer
from phalanx.store import Run, Store
from phalanx.tracking import external_folder
from phalanx.tracking.external_folder import REPLICA

DAY_S = 86_400.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z", re.ASCII)


def create(  # noqa: PLR0913 - all fields of a run
    home: Home,
    *,
    project: str,
    source: str,
    name: str | None = None,
    description: str | None = None,
    tags: Iterable[str] = (),
    params: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    created_at: float | None = None,
    user: str | None = None,
    run_id: str | None = None,
    patience_s: float = DAY_S,
) -> tuple[Run, Path]:
    """Create an active run, and the folder of its one replica's attempt. Its process cannot be seen, so it counts as
    lost when nothing was written for `patience_s`. The scheduler adopts it later; `adopt` does so at once. Raises
    CallError."""
    if run_id is not None and not _ID.match(run_id):
        raise CallError(f"{run_id[:100]!r} is not a valid run id: it has up to 64 letters, digits, `-` and `_`")
    about = external_folder.Description(
        project=project,
        name=name,
        description=description,
        tags=tuple(tags),
        params=params or {},
        user=user,
        source=source,
    )
    no_process = {"pid": 0, "started": 0, "boot": "", "host": socket.gethostname(), "patience_s": patience_s}
    watcher = {**no_process, "is_agent": False}
    try:
        folder = external_folder.create(str(home.path), about, run_id, created_at, watcher)
        attempt = Path(external_folder.attempt_folder(folder))
        if labels:
            append_event(attempt, "server", {"at": created_at, "kind": "labels", "values": dict(labels)})
    except FileExistsError as fault:
        raise CallError(str(fault)) from None
    except OSError as fault:
        raise disk_fault(f"the run cannot be kept in {home.runs}", fault) from None
    run = RunFolder(Path(folder)).read()
    assert run is not None
    return run, attempt


def append_event(attempt: Path, writer: str, event: Mapping[str, Any]) -> None:
    """Append one event to a file of ours. Raises OSError."""
    spool = Writer(attempt / f"{writer}.events")
    try:
        spool.append_json(event)
    finally:
        spool.close()


def adopt(home: Home, store: Store, run_id: str) -> Run:
    """Add the run's row now. Idempotent. Raises CallError."""
    folder = home.run(run_id)
    run = folder.read()
    if run is None:
        raise CallError(f"there is no run `{run_id}`")
    add_to_store(store, folder, run)
    (home.arrivals / run_id).unlink(missing_ok=True)
    return store.find(run_id)


def finish(home: Home, run_id: str, status: str, reason: str, at: float | None = None) -> None:
    """Record how such a run ended; the scheduler concludes it. The first record counts. Raises SystemFault."""
    folder = home.run(run_id)
    attempt = external_folder.attempt_folder(str(folder.path))
    try:
        began = json.loads((folder.path / run_paths.RUN).read_bytes())["created_at"]
        external_folder.write_end(attempt, cause_of(status), reason or status, began, at)
    except (OSError, ValueError, KeyError) as fault:
        raise disk_fault(f"the end of run {run_id} cannot be kept", fault) from None


def index_now(home: Home, store: Store, run: Run) -> None:
    """Update the store with new data, for callers that do not wait for the scheduler."""
    indexer = RunIndexer(home, store, run, [REPLICA])
    try:
        indexer.run_pass(is_over=True)
    finally:
        indexer.close()
