"""Rebuilds the database from the folders of the runs, which are the truth."""

from __future__ import annotations

import os

from phalanx.errors import CallError
from phalanx.home.home import Home, default_home
from phalanx.home.lease import Lease
from phalanx.home.stars import index_stars
from phalanx.ingest.adoption import index
from phalanx.registry.registry import Registry
from phalanx.store import Store


def rebuild_store() -> int:
    """Replace the database's content with that of the folders. Returns the number of runs. Raises CallError while a
    scheduler is active."""
    home = Home(default_home())
    lease = Lease(home)
    if not lease.take():
        raise CallError("a scheduler is active in this home: stop its runs, or wait until they have ended")
    with Store.open(home.path, os.environ.get("PHALANX_DATABASE")) as store:
        folders = set(home.run_ids())
        store.clear()
        for run_id in sorted(folders):
            run = home.run(run_id).read()
            if run is not None:
                index(home, store, run)
        index_stars(home, store)
        Registry(home, store)  # which updates its index from its journal
    lease.release()
    lease.close()
    return len(folders)
