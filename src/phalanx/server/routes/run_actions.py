"""/api/v1/runs/{run_id}/…: actions on runs: stop, priority, restart, copy, resume, remove."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Request

from phalanx.errors import CallError, SpecErrors
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.bodies import disk_refusal
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.submissions import recording
from phalanx.server.rows import waiting_row
from phalanx.server.run_environment import environment_for_runs
from phalanx.server.schemas.runs import ListedRun, PriorityChange, RemovedRuns
from phalanx.store import Run
from phalanx.submission.clone import prepare_clone
from phalanx.submission.priority import set_priority
from phalanx.submission.removal import remove
from phalanx.submission.resume import request_resume
from phalanx.submission.submit import create

TAKEN_UP_S = 5.0  # how long a response waits for the scheduler to pick up a run
LOOK_S = 0.02

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["runs"], responses=refusals(409, 507))


@router.post("/stop", response_model=ListedRun)
def stop_run(run_id: str, here: Here, caller: Caller) -> JsonResponse:
    """Ask every replica to terminate; those that do not are killed. The response does not wait for that. A run that has
    ended stays unchanged."""
    run = here.find(run_id)
    if not run.is_done:
        try:
            here.home.run(run.id).ask_to_stop(f"stopped by {caller.name}")
        except OSError as fault:
            raise disk_refusal(fault) from None
        here.wake()
    return JsonResponse(waiting_row(here.store, here.find(run_id)))


@router.post("/priority", response_model=ListedRun)
def change_priority(
    run_id: str, body: Annotated[PriorityChange, json_body(PriorityChange)], here: Here
) -> JsonResponse:
    """Change the priority of a run that has not ended. Higher priorities leave the queue first."""
    try:
        changed = set_priority(here.home, here.store, here.find(run_id), body.priority)
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    except OSError as fault:
        raise disk_refusal(fault) from None
    here.wake()
    return JsonResponse(waiting_row(here.store, changed))


@router.post("/restart", status_code=201, response_model=ListedRun)
def restart_run(run_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Run it again, as a new run with its own outputs."""
    return _clone(here, here.find(run_id), "restart", caller.name, request.scope["state"])


@router.post("/copy", status_code=201, response_model=ListedRun)
def copy_run(run_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Run it again, as a new run that starts with a copy of its outputs."""
    return _clone(here, here.find(run_id), "copy", caller.name, request.scope["state"])


def _clone(here: Context, run: Run, cloning: str, who: str, state: dict[str, Any]) -> JsonResponse:
    try:
        prepared = prepare_clone(here.home, run, cloning, environment_for_runs(), who)
        new = create(here.home, here.store, prepared)
    except (CallError, SpecErrors) as fault:
        raise RequestError(409, str(fault)) from None
    except OSError as fault:
        raise disk_refusal(fault) from None
    state["about"] = {"made": new.id}
    here.wake()
    return JsonResponse(waiting_row(here.store, new), 201, background=recording(here.home, prepared))


@router.post("/resume", response_model=ListedRun)
def resume_run(run_id: str, here: Here, caller: Caller) -> JsonResponse:
    """Continue a run that has ended: the next attempt of the same run, with the same outputs."""
    run = here.find(run_id)
    try:
        request_resume(here.home, run, environment_for_runs(), caller.name)
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    except OSError as fault:
        raise disk_refusal(fault) from None
    deadline = time.monotonic() + TAKEN_UP_S
    while run_id in here.home.asked_to_resume() and time.monotonic() < deadline:
        here.wake()
        time.sleep(LOOK_S)
    return JsonResponse(waiting_row(here.store, here.find(run_id)))


@router.delete("", response_model=RemovedRuns)
def remove_run(run_id: str, here: Here) -> JsonResponse:
    """Remove a run that has ended, with its logs, outputs and all other files."""
    with here.run_writers.of(run_id):
        run = here.find(run_id)
        if not run.is_done:
            hint = f"stop it first: POST /api/v1/runs/{run.id}/stop"
            raise RequestError(409, f"run {run.id} has not ended: it is {run.status}", hint)
        try:
            remove(here.home, here.store, [run])
        except OSError as fault:
            raise disk_refusal(fault) from None
    return JsonResponse({"removed": [run_id]})
