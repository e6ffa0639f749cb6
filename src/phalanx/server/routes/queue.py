"""/api/v1/queue and /machine: waiting runs, and the capacity to run them."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request

from phalanx import __version__
from phalanx.backends.local.capacity import Capacity, this_machine
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
from phalanx.submission.queue_report import QueueReport, requested

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
    report = _report(active, request, here)
    visible = caller.projects(Role.VIEWER)
    shown = [run for run in active if visible is None or run.project in visible]
    page = shown[offset : offset + limit]
    reasons = waits_for(here.store, page)
    rows = []
    for run in page:
        why, asked = reasons.get(run.id) or report.why(run), _share_row(report.requested(run))
        rows.append({**run_row(run), "place": report.places.get(run.id), "waits_for": why, "asked": asked})
    return JsonResponse({"runs": rows, "count": len(shown), "schedules": somebody_schedules(here.home)})


@router.get("/machine", response_model=Machine)
def show_machine(request: Request, here: Here, caller: Caller) -> JsonResponse:
    """The capacity of the server's machine, and what is free according to the runs' requests."""
    room, gpus = _machine(request)
    report = _report(_active(request, here), request, here)
    free = {name: max(0.0, amount) for name, amount in _share_row(report.free).items()}
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


def _report(active: list[Run], request: Request, here: Context) -> QueueReport:
    kept: CachedResponse[Capacity] = request.app.state.shares
    blocked: CachedResponse[set[str]] = request.app.state.queue
    return QueueReport(
        active,
        blocked.get(("blocked", here.shared.changes()), ACTIVE_S, here.store.blocked),
        lambda run: kept.get(run.id, PLANS_S, lambda: requested(here.home, run)),
        _machine(request)[0],
    )


def _active(request: Request, here: Context) -> list[Run]:
    """Cached until a client changes something: thousands of runs may wait, and many pages show them."""
    kept: CachedResponse[list[Run]] = request.app.state.queue
    return kept.get(("active", here.shared.changes()), ACTIVE_S, here.store.active)


def _machine(request: Request) -> tuple[Capacity, tuple[str, ...]]:
    machine: CachedResponse[tuple[Capacity, tuple[str, ...]]] = request.app.state.machine
    return machine.get("here", MACHINE_S, this_machine)


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
