"""Queries for the runs that a scheduler has to look at. Imports nothing of it: every command asks this first."""

from __future__ import annotations

from phalanx.store import Store
from phalanx.tracking.external_folder import BACKEND as OUTSIDE

GROUP = "group"  # the kind of the row of a group, beside the rows of its runs
IS_RUN = f"kind:~{GROUP}"
_WAITING = "created|resuming|warning"
STARTED = "status:building|scheduled|starting|running|unknown"
BLOCKED = f"status:{_WAITING}, {IS_RUN}, blocked:true"
QUEUED = f"status:{_WAITING}, blocked:false"
UNFINISHED = f"status:{_WAITING}|{STARTED.partition(':')[2]}"
UNFINISHED_GROUPS = f"kind:{GROUP}, status:{_WAITING}|running"
GROUPS_AT_WORK = f"kind:{GROUP}, status:created|resuming|running"  # not paused


def has_work(store: Store) -> bool:
    """Whether a scheduler has anything to wait for: not runs that are only tracked, nor groups that are paused."""
    return bool(store.count(f"{UNFINISHED}, {IS_RUN}, backend:~{OUTSIDE}") or store.count(GROUPS_AT_WORK))
