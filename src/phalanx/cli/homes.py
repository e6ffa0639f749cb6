"""The home that a verb works on, and runs as JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home
    from phalanx.store import Replica, Run, StatusChange, Store


def open_home() -> tuple[Home, Store]:
    """PHALANX_HOME, or ~/.phalanx; the store is PHALANX_DATABASE, or SQLite in the home. Raises CallError."""
    from phalanx.scheduler.home import Home, default_home
    from phalanx.store import Store

    home = Home(default_home())
    return home, Store.open(home.path, os.environ.get("PHALANX_DATABASE"))


def run_row(run: Run) -> dict[str, Any]:
    row = run._asdict()
    for name in ("created_at", "updated_at", "started_at", "finished_at"):
        row[name] = row[name].isoformat() if row[name] is not None else None
    return {**row, "tags": list(run.tags), "params": dict(run.params), "summary": dict(run.summary)}


def replica_row(replica: Replica) -> dict[str, Any]:
    row = replica._asdict()
    for name in ("started_at", "finished_at"):
        row[name] = row[name].isoformat() if row[name] is not None else None
    return {**row, "index": row.pop("number"), "name": replica.name, "peak": dict(replica.peak)}


def status_row(change: StatusChange) -> dict[str, Any]:
    return {**change._asdict(), "at": change.at.isoformat()}
