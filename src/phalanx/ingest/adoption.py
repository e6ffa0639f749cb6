"""Database rows for runs that only have folders."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.store import Run, Store


def adopt_all(home: Home, store: Store, run_ids: Iterable[str]) -> None:
    """Adds rows for runs that have only folders."""
    for run_id in run_ids:
        run = home.run(run_id).read()
        if run is not None:
            add_to_store(store, home.run(run_id), run)
        (home.arrivals / run_id).unlink(missing_ok=True)


def add_to_store(store: Store, folder: RunFolder, run: Run) -> None:
    """Store a run and its history from its folder in one transaction: a row without its first statuses would look
    complete. Idempotent."""
    with store.transaction():
        store.add(run)
        for change in folder.history():
            store.record(change)
