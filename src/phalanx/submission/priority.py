"""Changes the priority of a run that has not ended."""

from __future__ import annotations

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.store import Run, Store
from phalanx.submission.checks import check_priority


def set_priority(home: Home, store: Store, run: Run, priority: object) -> Run:
    """Also in the run's folder, from which the database can be rebuilt. It counts while the run is queued here: an
    engine that has its job has its own queue. Raises CallError, OSError."""
    checked = check_priority(priority)
    if run.is_done:
        raise CallError(f"run {run.id} has ended ({run.status}): its priority has no effect any more")
    try:
        home.run(run.id).set_priority(checked)
    except ValueError:
        raise CallError(f"the record of run {run.id} in its folder cannot be read") from None
    store.update(run.id, priority=checked)
    return store.find(run.id)
