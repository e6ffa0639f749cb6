"""Queries for the runs that a scheduler has to look at. Imports nothing of it: every command asks this first."""

from __future__ import annotations

from phalanx.store import Store
from phalanx.store.kinds import GROUP, IS_RUN, PIPELINE, WHOLES
from phalanx.tracking.external_folder import BACKEND as OUTSIDE

_WAITING = "created|resuming|warning"
STARTED = "status:building|scheduled|starting|running|unknown"
BLOCKED = f"status:{_WAITING}|building, {IS_RUN}, blocked:true"
QUEUED = f"status:{_WAITING}, blocked:false"
UNFINISHED = f"status:{_WAITING}|{STARTED.partition(':')[2]}"
UNFINISHED_WHOLES = f"kind:{'|'.join(WHOLES)}, status:{_WAITING}|running"
AT_WORK = f"kind:{GROUP}|{PIPELINE}, status:created|resuming|running"  # not paused; only a server looks at schedules


def has_work(store: Store) -> bool:
    """Whether a scheduler has anything to wait for: not runs that are only tracked, groups that are
    paused, nor schedules."""
    return bool(store.count(f"{UNFINISHED}, {IS_RUN}, backend:~{OUTSIDE}") or store.count(AT_WORK))
