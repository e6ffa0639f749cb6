"""/api/v1/runs/{run_id}/use: requested and used resources of a run, and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from phalanx import run_paths
from phalanx.ends import read_end
from phalanx.errors import CallError, PhalanxError
from phalanx.home.home import Home
from phalanx.insight.advice import RoleAdvice, Sizing
from phalanx.insight.samples import GpuSample, ProcessSamples, UsageInterval, read_notes, recorded
from phalanx.server.context import Here
from phalanx.server.http.paths import REPLICA_NAME
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.replicas import ResourceUse, UseOverTime
from phalanx.store import Run
from phalanx.stored_plan import NO_AMOUNT
from phalanx.submission.advised_spec import advice_for, advice_row, advised_document

LIVE_S = 10.0  # seconds that a response is cached while the run is active
OVER_S = 600.0

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["runs"])


@router.get("/use", response_model=ResourceUse)
def show_use(run_id: str, request: Request, here: Here) -> JsonResponse:
    """Requested and used resources by replica type, the advised amounts, and findings as sentences."""
    run = here.find(run_id)
    uses: CachedResponse[dict[str, Any]] = request.app.state.uses
    key = (run.id, run.status, run.attempt, run.updated_at)
    return JsonResponse(uses.get(key, OVER_S if run.is_done else LIVE_S, lambda: use_data(here.home, run)))


@router.get("/use/{replica}", response_model=UseOverTime)
def show_use_over_time(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    replica: str,
    request: Request,
    here: Here,
    *,
    buckets: Annotated[int, Query(ge=1, le=2000)] = 300,
    attempt: Annotated[int | None, Query(ge=1, le=10**9)] = None,
) -> JsonResponse:
    """Cores, memory and GPUs of one replica over the time of an attempt (default: the newest)."""
    run = here.find(run_id)
    if not REPLICA_NAME.match(replica):
        raise RequestError(404, f"run {run.id} has no replica {replica[:100]!r}")
    folder = here.home.run(run.id).path / run_paths.attempt_folder(replica, attempt or max(1, run.attempt))
    uses: CachedResponse[dict[str, Any]] = request.app.state.uses
    key = (folder, buckets, run.status, run.updated_at)
    return JsonResponse(uses.get(key, OVER_S if run.is_done else LIVE_S, lambda: over_time(folder, replica, buckets)))


# requested and used --------------------------------------------------------------------------------------------------


def use_data(home: Home, run: Run) -> dict[str, Any]:
    """Raises RequestError for a run that was not measured."""
    try:
        found = advice_for(home, run)
    except CallError as fault:
        raise RequestError(404, str(fault)) from None
    try:
        row = advice_row(found.advice, advised_document(home, run, found))
    except PhalanxError as fault:  # what was used is known all the same
        row = advice_row(found.advice, None)
        row["caveats"].append(str(fault))
    roles = [_role(role) for role in found.advice.roles]
    sentences = [*found.advice.caveats, *(remark for role in found.advice.roles for remark in role.remarks)]
    return {"roles": roles, "sentences": sentences, "advice": row}


def _role(role: RoleAdvice) -> dict[str, Any]:
    uses = list(role.group.uses.values())
    held = sum(use.held_s for use in uses)
    memory = sum(use.memory_mean_mib * use.held_s for use in uses) / held if held else None
    return {
        "role": role.group.role,
        "names": role.group.names,
        "count": len(role.group.indices),
        "resources": [
            _resource(role, "cpu", "cores", role.cpu, mean=role.cores_mean, p95=role.cpu.used),
            _resource(role, "memory", "MiB", role.memory, mean=memory, peak=role.memory.used),
            *_gpus(role),
        ],
    }


def _resource(role: RoleAdvice, name: str, unit: str, sizing: Sizing, **used: float | None) -> dict[str, Any]:
    asked = role.group.asked.get(name, NO_AMOUNT)
    return {
        "resource": name,
        "unit": unit,
        "requested": asked.requests,
        "limit": asked.limits,
        "mean": None,
        "p95": None,
        "peak": None,
        **used,
        "idle_hours": sizing.idle_hours,
        "advice": sizing.advised,
    }


def _gpus(role: RoleAdvice) -> list[dict[str, Any]]:
    """Number, utilisation and memory of the GPUs."""
    if not role.gpu.asked and role.gpu_use is None:
        return []
    rows = [_resource(role, "gpu", "GPUs", role.gpu, peak=role.gpu.used)]
    use = role.gpu_use
    if use is not None:
        busy = {"mean": use.mean_percent, "peak": use.busiest_percent}
        rows.append({**_resource(role, "gpu busy", "%", Sizing(), **busy), "limit": 100.0})
        rows.append({**_resource(role, "gpu memory", "MiB", Sizing(), peak=use.memory_mib), "limit": use.total_mib})
    return rows


# over time -----------------------------------------------------------------------------------------------------------


def over_time(folder: Path, replica: str, buckets: int) -> dict[str, Any]:
    known = recorded(replica, read_notes(folder / run_paths.SPOOL), read_end(folder))
    if known is None or known.until <= known.started_at:
        return {"times": [], "cpu": [], "memory_mib": [], "gpus": []}
    stretches: dict[int, list[UsageInterval]] = {}
    for stretch in known.stretches:
        stretches.setdefault(_place(stretch.until, known, buckets), []).append(stretch)
    places = sorted(stretches)  # a short run has fewer samples than buckets
    gpus: dict[int, dict[int, list[GpuSample]]] = {}
    for look in known.gpus:
        gpus.setdefault(look.gpu, {}).setdefault(_place(look.at, known, buckets), []).append(look)
    return {
        "times": [known.started_at + known.seconds * (place + 0.5) / buckets for place in places],
        "cpu": [_mean([(one.cores, one.seconds) for one in stretches[place]]) for place in places],
        "memory_mib": [max(one.memory_mib for one in stretches[place]) for place in places],
        "gpus": [_gpu(index, gpus[index], places) for index in sorted(gpus)],
    }


def _place(at: float, known: ProcessSamples, buckets: int) -> int:
    return min(buckets - 1, max(0, int((at - known.started_at) / known.seconds * buckets)))


def _gpu(index: int, looks: Mapping[int, Sequence[GpuSample]], places: Sequence[int]) -> dict[str, Any]:
    each = [looks.get(place, ()) for place in places]
    return {
        "name": str(index),
        "util": [_mean([(look.percent, 1.0) for look in found]) for found in each],
        "memory_mib": [max((look.memory_mib for look in found), default=None) for found in each],
    }


def _mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    total = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / total if total > 0 else None
