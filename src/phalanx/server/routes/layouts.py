"""/api/v1/layout: the charts that are pinned in a project."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Query, Request

from phalanx.server.auth.identities import Role
from phalanx.server.context import Caller, Here, require_role
from phalanx.server.document_versions import changing, tagged, version_of
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse
from phalanx.server.schemas.reports import Layout, LayoutChange
from phalanx.server.shared_documents import MISSING

Project = Annotated[str, Query(min_length=1, max_length=500)]

router = APIRouter(prefix="/api/v1", tags=["reports"])


@router.get("/layout", response_model=Layout)
def show_layout(project: Project, here: Here, caller: Caller) -> JsonResponse:
    """The charts that are pinned in a project, in their order. The ETag is the version."""
    require_role(caller, project, Role.VIEWER)
    found = here.layouts.read(_name(project))
    charts = [] if found is None else found.value.get("charts", [])
    return tagged({"project": project, "charts": charts}, MISSING if found is None else found.tag)


@router.put("/layout", response_model=Layout, responses=refusals(412, 428, 507))
def change_layout(
    project: Project,
    body: Annotated[LayoutChange, json_body(LayoutChange)],
    request: Request,
    here: Here,
    caller: Caller,
) -> JsonResponse:
    """Replace the pinned charts. If-Match must be the ETag of the version that was changed."""
    require_role(caller, project, Role.EDITOR)
    charts = [chart.model_dump() for chart in body.charts]
    with changing():
        kept = {"version": 1, "project": project, "charts": charts, "updated_by": caller.name}
        made = here.layouts.write(_name(project), kept, version_of(request))
    return tagged({"project": project, "charts": charts}, made.tag)


def _name(project: str) -> str:
    """A file name: a project may be called anything."""
    return sha256(project.encode("utf-8", "surrogatepass")).hexdigest()[:32]
