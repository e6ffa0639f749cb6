"""/api/v1/views: saved views of the table of runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from phalanx.server.auth.identities import ALL, Role
from phalanx.server.context import Caller, require_role
from phalanx.server.http.bodies import disk_refusal
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse
from phalanx.server.saved_views import SavedView, SavedViews
from phalanx.server.schemas.run_tables import RemovedView, ViewCreation, ViewPage, ViewRow

router = APIRouter(prefix="/api/v1/views", tags=["runs"])


def _views(request: Request) -> SavedViews:
    found: SavedViews = request.app.state.views
    return found


@router.get("", response_model=ViewPage)
def list_views(
    request: Request, caller: Caller, project: Annotated[str | None, Query(max_length=600)] = None
) -> JsonResponse:
    """The caller's own views, and those that are shared with the caller; with `project`, of this project and of all."""
    found = _views(request).visible(caller, project)
    return JsonResponse({"count": len(found), "views": [view._asdict() for view in found]})


@router.post("", status_code=201, response_model=ViewRow, responses=refusals(409, 507))
def save_view(request: Request, body: Annotated[ViewCreation, json_body(ViewCreation)], caller: Caller) -> JsonResponse:
    """Save a view. One of the same name, project and kind (personal or shared) is replaced. To share a view needs the
    role editor on its project, or on all projects."""
    if body.shared:
        require_role(caller, body.project or ALL, Role.EDITOR)
    elif body.project is not None:
        require_role(caller, body.project, Role.VIEWER)
    wanted = SavedView(id="", user=caller.name, updated_at="", **body.model_dump())
    try:
        return JsonResponse(_views(request).save(caller, wanted)._asdict(), 201)
    except OSError as fault:
        raise disk_refusal(fault) from None


@router.delete("/{view_id}", response_model=RemovedView, responses=refusals(507))
def remove_view(request: Request, view_id: str, caller: Caller) -> JsonResponse:
    """Delete one's own view; admins of the project delete shared ones, too."""
    try:
        _views(request).remove(caller, view_id)
    except OSError as fault:
        raise disk_refusal(fault) from None
    return JsonResponse({"removed": view_id})
