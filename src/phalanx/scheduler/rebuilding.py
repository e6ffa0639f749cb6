"""The database made again from the folders of the runs, which are the truth."""

from __future__ import annotations

import json
import os

from phalanx.backends.local_running import Sighting
from phalanx.errors import CallError
from phalanx.scheduler.gathering import Gatherer
from phalanx.scheduler.home import Home, Lease, RunFolder, default_home
from phalanx.scheduler.outputs import index_outputs, read_manifest
from phalanx.scheduler.registry import Registry
from phalanx.scheduler.scheduler import add_to_store, row_of
from phalanx.store import Run, Store


def rebuild_store() -> int:
    """Replace what the database says by what the folders say. Answers how many runs there are. Raises CallError while
    someone schedules."""
    home = Home(default_home())
    lease = Lease(home)
    if not lease.take():
        raise CallError("a scheduler is at work in this home: stop its runs, or wait until they are over")
    with Store.open(home.path, os.environ.get("PHALANX_DATABASE")) as store:
        folders = set(home.run_ids())
        store.clear()
        for run_id in sorted(folders):
            run = home.run(run_id).read()
            if run is not None:
                index(home, store, run)
        Registry(home, store)  # which brings its index up to its journal
    lease.release()
    lease.close()
    return len(folders)


def index(home: Home, store: Store, run: Run) -> None:
    """The database's part of a run, as its folder has it."""
    add_to_store(store, home.run(run.id), run)
    _add_replicas(store, home.run(run.id), run)
    _gather(home, store, run)
    index_outputs(store, run.id, read_manifest(home.run(run.id).path))


def _add_replicas(store: Store, folder: RunFolder, run: Run) -> None:
    try:
        planned = {f"{r['role']}-{r['index']}": r for r in json.loads(folder.plan_file.read_bytes())["replicas"]}
    except (OSError, ValueError, KeyError):
        return
    for attempt in range(1, run.attempt + 1):
        rows = []
        for name, place in folder.replica_folders(attempt):
            try:
                end = json.loads((place / "end.json").read_bytes())
            except (OSError, ValueError):
                continue
            if name in planned:
                rows.append(row_of(run._replace(attempt=attempt), planned[name], Sighting("ended", end=end)))
        store.put_replicas(rows)


def _gather(home: Home, store: Store, run: Run) -> None:
    """Everything that its replicas tracked, in every attempt."""
    for attempt in range(1, run.attempt + 1):
        names = [name for name, _ in home.run(run.id).replica_folders(attempt)]
        if names:
            gatherer = Gatherer(home, store, run._replace(attempt=attempt), names)
            gatherer.turn(is_over=True)
            gatherer.close()
