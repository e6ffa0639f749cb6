"""/api/v1/queue and /machine: waiting runs, and the capacity to run them."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request

from phalanx import __version__
from phalanx.backends.contract import LOCAL_BACKENDS
from phalanx.backends.local.capacity import NOTHING, Capacity, excess, requested_by, this_machine
from phalanx.home.home import Home
from phalanx.insight.wait_reasons import waits_for
from phalanx.locks import take
from phalanx.server.auth.identities import Role
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import JsonResponse
from phalanx.server.schemas.queue import Machine, QueuePage
from phalanx.store import Run
from phalanx.store.rows import run_row
from phalanx.stored_plan import PlanDamaged, read_plan

QUEUED = ("created", "resuming", "warning")
PLANS_S = 3600.0  # plans do not change
MACHINE_S = 60.0
ACTIVE_S = 0.5

router = APIRouter(prefix="/api/v1", tags=["queue"])


@router.get("/queue", response_model=QueuePage)
def show_queue(
    request: Request, here: Here, caller: Caller, *, limit: Limit = 1000, offset: Offset = 0
) -> JsonResponse:
    """A page of the active runs in start order; for waiting ones the position in their queue, what they wait for and
    what they request."""
    active = _active(request, here)
    room = _machine(request)[0]
    used = _used(active, request, here)
    places = _places(active)
    visible = caller.projects(Role.VIEWER)
    shown = [run for run in active if visible is None or run.project in visible]
    page = shown[offset : offset + limit]
    reasons = waits_for(here.store, page)
    rows = []
    for run in page:
        place, asked = places.get(run.id), _requested(run, request, here)
        why = reasons.get(run.id) or (_why(run, place, asked, used, room) if place is not None else None)
        rows.append({**run_row(run), "place": place, "waits_for": why, "asked": _share_row(asked)})
    return JsonResponse({"runs": rows, "count": len(shown), "schedules": somebody_schedules(here.home)})


@router.get("/machine", response_model=Machine)
def show_machine(request: Request, here: Here, caller: Caller) -> JsonResponse:
    """The capacity of the server's machine, and what is free according to the runs' requests."""
    room, gpus = _machine(request)
    used = _used(_active(request, here), request, here)
    free = {name: max(0.0, amount) for name, amount in _share_row(_less(room, used)).items()}
    disk = shutil.disk_usage(here.home.path)
    answer: dict[str, Any] = {
        "host": socket.gethostname(),
        "cpus": room.cpus,
        "memory_mib": room.memory_mib,
        "gpus": list(gpus),
        "free": {**free, "gpus": int(free["gpus"])},
        "load": list(os.getloadavg()),
        "disk": {"total_bytes": disk.total, "free_bytes": disk.free},
        "version": __version__,
    }
    if caller.has(Role.ADMIN):
        answer["home"] = str(here.home.path)
    return JsonResponse(answer)


def _requested(run: Run, request: Request, here: Context) -> Capacity:
    """The request of a run, from its plan."""

    def read() -> Capacity:
        try:
            return requested_by(read_plan(here.home.run(run.id).path))
        except (OSError, PlanDamaged):
            return NOTHING

    kept: CachedResponse[Capacity] = request.app.state.shares
    return kept.get(run.id, PLANS_S, read)


def _active(request: Request, here: Context) -> list[Run]:
    """Cached: thousands of runs may wait, and many pages show them."""
    kept: CachedResponse[list[Run]] = request.app.state.queue
    return kept.get("active", ACTIVE_S, here.store.active)


def _machine(request: Request) -> tuple[Capacity, tuple[str, ...]]:
    machine: CachedResponse[tuple[Capacity, tuple[str, ...]]] = request.app.state.machine
    return machine.get("here", MACHINE_S, this_machine)


def _used(active: list[Run], request: Request, here: Context) -> Capacity:
    """Capacity used by runs on this machine that have left the queue."""
    used = NOTHING
    for run in active:
        if run.status not in QUEUED and run.backend in LOCAL_BACKENDS:
            used += _requested(run, request, here)
    return used


def _less(room: Capacity, used: Capacity) -> Capacity:
    return Capacity(room.cpus - used.cpus, room.memory_mib - used.memory_mib, room.gpus - used.gpus)


def _places(active: list[Run]) -> dict[str, int]:
    """Positions from 1, in the queue of this machine or of each engine."""
    counts: dict[str, int] = {}
    found = {}
    for run in active:
        if run.status in QUEUED:
            where = "" if run.backend in LOCAL_BACKENDS else run.backend
            found[run.id] = counts[where] = counts.get(where, 0) + 1
    return found


def _why(run: Run, place: int, asked: Capacity, used: Capacity, room: Capacity) -> str:
    if run.backend not in LOCAL_BACKENDS:
        return f"submission to {run.backend}"
    if place > 1:
        return f"{place - 1} {'run' if place == 2 else 'runs'} before it"
    missing = excess(asked, _less(room, used))
    if missing is None:
        return "starting soon"
    return f"room on this machine: requests {missing} that are free" if used != NOTHING else "starting soon"


def _share_row(share: Capacity) -> dict[str, float]:
    return {"cpu": share.cpus, "memory_mib": share.memory_mib, "gpus": share.gpus}


def somebody_schedules(home: Home) -> bool:
    """Whether any process holds the lease. Takes a shared lock and releases it at once: a scheduler that tries to take
    the lease at that moment retries."""
    path: Path = home.path / "scheduler.lock"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not take(descriptor, wait=False, shared=True)
    except OSError:
        return True
    finally:
        os.close(descriptor)
