"""Tracked runs that a server has not got yet: they wait in `<home>/outbox` for `phalanx sync`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.home.run_folder import decode_run


class UnsentRun(NamedTuple):
    """`status` is None while its process may be running; `server` is None if an older Phalanx wrote the folder."""

    id: str
    name: str | None
    project: str
    created_at: datetime
    status: str | None
    server: str | None
    folder: Path


def unsent_runs(home: Path) -> list[UnsentRun]:
    """The newest first. A folder that cannot be read is left out."""
    outbox = home / "outbox" / "runs"
    try:
        folders = [path for path in outbox.iterdir() if not path.name.startswith(".")]
    except OSError:
        return []
    found = [run for run in map(_read, folders) if run is not None]
    return sorted(found, key=lambda run: run.created_at, reverse=True)


def _read(folder: Path) -> UnsentRun | None:
    from phalanx.ends import read_end, status_of
    from phalanx.tracking.external_folder import attempt_folder

    try:
        data = read_json(folder / run_paths.RUN)
        run = decode_run(data) if isinstance(data, dict) else None
    except (OSError, LookupError, TypeError, ValueError):
        return None
    if run is None:
        return None
    end = read_end(Path(attempt_folder(str(folder))))
    about = read_json(folder / run_paths.UPLOAD)
    server = about.get("server") if isinstance(about, dict) else None
    status = None if end is None else status_of(end.cause)
    return UnsentRun(run.id, run.name, run.project, run.created_at, status, server, folder)
