"""Database rows for runs that only have folders."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.store import Run, Store


def adopt_all(home: Home, store: Store, run_ids: Iterable[str]) -> None:
    """Rows for runs that have only folders."""
    for run_id in run_ids:
        run = home.run(run_id).read()
        if run is not None:
            add_to_store(store, home.run(run_id), run)
        (home.arrivals / run_id).unlink(missing_ok=True)


def add_to_store(store: Store, folder: RunFolder, run: Run) -> None:
    """A run and its history, as its folder has them, all at once: a row without its first statuses would look
    complete. May be called again."""
    with store.transaction():
        store.add(run)
        for change in folder.history():
            store.record(change)
