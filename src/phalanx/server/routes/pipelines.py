"""/api/v1/pipelines/{run_id}: the ops of a pipeline, their states and the edges between them."""

from __future__ import annotations

from fastapi import APIRouter, Request

from phalanx.errors import CallError
from phalanx.scheduler.pipelines.report import PipelineReport, require_pipeline
from phalanx.server.context import Here
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import EncodedJsonResponse, JsonResponse, RequestError, encoded
from phalanx.server.routes.groups import KEPT_S, SharedReport
from phalanx.server.schemas.pipelines import PipelineDetails

router = APIRouter(prefix="/api/v1/pipelines/{run_id}", tags=["pipelines"], responses=refusals(409))


@router.get("", response_model=PipelineDetails)
def show_pipeline(run_id: str, request: Request, here: Here) -> JsonResponse:
    """A pipeline or schedule: the status of each op, its run, why it waits or how it ended, and which op waits for
    which. It is stopped, resumed and removed like a run."""
    run = here.find(run_id)
    try:
        require_pipeline(run)
    except CallError as fault:
        raise RequestError(409, str(fault), f"GET /api/v1/runs/{run.id} shows it") from None
    shared: CachedResponse[SharedReport[PipelineReport]] = request.app.state.groups

    def make() -> bytes:
        with shared.get(run.id, KEPT_S, lambda: SharedReport(PipelineReport)).current(here, run) as report:
            return encoded(report.summary())

    return EncodedJsonResponse(here.recent.get(("pipeline", run.id), make))
