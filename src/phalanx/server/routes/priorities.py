"""/api/v1/runs/{run_id}/priority: a run's place in the queue."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from phalanx.errors import CallError
from phalanx.server.context import Here
from phalanx.server.http.bodies import disk_refusal
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.rows import waiting_row
from phalanx.server.schemas.priorities import PriorityChange
from phalanx.server.schemas.runs import ListedRun
from phalanx.submission.priority import set_priority

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["queue"], responses=refusals(409, 507))


@router.post("/priority", response_model=ListedRun)
def change_priority(
    run_id: str, body: Annotated[PriorityChange, json_body(PriorityChange)], here: Here
) -> JsonResponse:
    """Change the priority of a run that has not ended. Higher priorities leave the queue first."""
    run = here.find(run_id)
    try:
        changed = set_priority(here.home, here.store, run, body.priority)
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    except OSError as fault:
        raise disk_refusal(fault) from None
    here.wake()
    return JsonResponse(waiting_row(here.store, changed))
