"""/api/v1/projects: projects, which may be nested: `team/vision` is inside of `team`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from phalanx.errors import CallError
from phalanx.home.projects import Projects, details_row, summary_row
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.context import Caller, Context, Here, require_role, visible_projects
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.projects import (
    NewProject,
    ProjectChange,
    ProjectDetailsRow,
    ProjectPage,
    ProjectRow,
    RemovedProject,
)

router = APIRouter(prefix="/api/v1/projects", tags=["projects"])


@router.get("", response_model=ProjectPage)
def list_projects(here: Here, caller: Caller, *, limit: Limit = 1000, offset: Offset = 0) -> JsonResponse:
    """A page of the projects that the caller may see, by name."""
    found = Projects(here.home, here.store).list(visible_projects(caller))
    return JsonResponse({"count": len(found), "projects": [summary_row(one) for one in found[offset : offset + limit]]})


@router.post("", status_code=201, response_model=ProjectRow, responses=refusals(409, 507))
def create_project(body: Annotated[NewProject, json_body(NewProject)], here: Here, caller: Caller) -> JsonResponse:
    """Create a project. A run creates its project, too. Requires the role editor on it, or on one that contains it."""
    require_role(caller, body.name, Role.EDITOR)
    try:
        made = Projects(here.home, here.store).create(body.name, body.description, caller.name)
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    return JsonResponse(summary_row(made), 201)


@router.get("/{name:path}", response_model=ProjectDetailsRow)
def show_project(name: str, here: Here, caller: Caller) -> JsonResponse:
    """A project with the number of its runs by status, and its nested projects."""
    return JsonResponse(details_row(_of(here, caller, name).show(name)))


@router.patch("/{name:path}", response_model=ProjectRow, responses=refusals(409, 507))
def describe_project(
    name: str, body: Annotated[ProjectChange, json_body(ProjectChange)], here: Here, caller: Caller
) -> JsonResponse:
    """Replace the description of a project. Requires the role editor on it."""
    found = _of(here, caller, name)
    require_role(caller, name, Role.EDITOR)
    try:
        return JsonResponse(summary_row(found.describe(name, body.description, caller.name)))
    except CallError as fault:
        raise RequestError(409, str(fault)) from None


@router.delete("/{name:path}", response_model=RemovedProject, responses=refusals(409, 507))
def remove_project(name: str, here: Here, caller: Caller) -> JsonResponse:
    """Remove a project that has no runs, with its nested ones. Requires the role editor on it."""
    found = _of(here, caller, name)
    require_role(caller, name, Role.EDITOR)
    try:
        found.remove(name)
    except CallError as fault:
        raise RequestError(409, str(fault), "DELETE /api/v1/runs/{run_id} deletes a run") from None
    return JsonResponse({"removed": name})


def _of(here: Context, caller: Identity, name: str) -> Projects:
    """The projects, if this one exists and the caller may see it. Raises RequestError."""
    projects = Projects(here.home, here.store)
    try:
        if not caller.has(Role.VIEWER, name):
            raise CallError("not visible")
        projects.show(name)
    except CallError:
        message = f"there is no project `{name[:100]}`"
        raise RequestError(404, message, "GET /api/v1/projects lists all projects") from None
    return projects
