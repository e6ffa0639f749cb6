"""/api/v1/retention: what the rules of runs and of the home's config.yml say to remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from phalanx.errors import SpecErrors
from phalanx.retention.cleanup import Retention
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.retention import RetentionOrder, RetentionPlan, RetentionResult
from phalanx.settings.home_settings import read_home_settings

router = APIRouter(prefix="/api/v1/retention", tags=["server"], responses=refusals(409, 507))


@router.get("", response_model=RetentionPlan)
def show_retention(here: Here, project: Annotated[str | None, Query(max_length=600)] = None) -> JsonResponse:
    """What would be removed, and why. Nothing is changed."""
    return JsonResponse(_retention(here).plan(project).as_json())


@router.post("", response_model=RetentionResult)
def apply_retention(
    body: Annotated[RetentionOrder, json_body(RetentionOrder)], here: Here, caller: Caller
) -> JsonResponse:
    """Remove it. Every removal is an event of its run."""
    retention = _retention(here)
    retention.recover()
    freed, troubles = retention.apply(retention.plan(body.project), caller.name)
    return JsonResponse({"freed": freed, "troubles": troubles})


def _retention(here: Context) -> Retention:
    try:
        return Retention(here.home, here.store, read_home_settings(here.home.path))
    except SpecErrors as fault:
        raise RequestError(409, f"config.yml of the server is wrong: {fault.errors[0]}") from None
