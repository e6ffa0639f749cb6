"""/api/v1/runs/{run_id}/…: archive runs, change tags, star runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from phalanx.errors import CallError
from phalanx.home.stars import change_stars
from phalanx.ingest.run_changes import RunEdit, check_change, require_archivable
from phalanx.server import external_lifecycle
from phalanx.server.context import Caller, Context, Here, visible_projects
from phalanx.server.http.bodies import disk_refusal
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.rows import waiting_row
from phalanx.server.schemas.run_tables import StarList, TagChange
from phalanx.server.schemas.runs import ListedRun
from phalanx.store import Run
from phalanx.submission.removal import with_parts

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.post("/runs/{run_id}/archive", response_model=ListedRun, responses=refusals(409, 507))
def archive_run(run_id: str, here: Here) -> JsonResponse:
    """Leave a run that has ended out of lists; a group with all its trials. Nothing is deleted."""
    return _archive(here, here.find(run_id), archived=True)


@router.post("/runs/{run_id}/unarchive", response_model=ListedRun, responses=refusals(409, 507))
def unarchive_run(run_id: str, here: Here) -> JsonResponse:
    """Show an archived run in lists again; a group with all its trials."""
    return _archive(here, here.find(run_id), archived=False)


def _archive(here: Context, run: Run, *, archived: bool) -> JsonResponse:
    runs = with_parts(here.store, [run])
    try:
        if archived:
            require_archivable(runs)
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    for one in runs:
        if one.archived != archived:
            _change(here, one, RunEdit(archived=archived))
    return JsonResponse(waiting_row(here.store, here.find(run.id)))


def _change(here: Context, run: Run, change: RunEdit) -> None:
    with here.run_writers.of(run.id) as writer:
        try:
            writer.events(external_lifecycle.place(here, run), *change.events())
        except OSError as fault:
            raise disk_refusal(fault) from None
        change.apply(here.store, run.id)


@router.post("/runs/{run_id}/tags", response_model=ListedRun, responses=refusals(507))
def change_tags(run_id: str, body: Annotated[TagChange, json_body(TagChange)], here: Here) -> JsonResponse:
    """Add and remove tags; the others stay. Unlike `tags` of PATCH, it is safe when others change tags, too."""
    change = RunEdit(added=body.add or (), removed=body.remove or ())
    try:
        check_change(change)
    except CallError as fault:
        raise RequestError(400, str(fault)) from None
    _change(here, here.find(run_id), change)
    return JsonResponse(waiting_row(here.store, here.find(run_id)))


@router.get("/stars", response_model=StarList)
def list_stars(here: Here, caller: Caller) -> JsonResponse:
    """The runs that the caller has starred, among those that the caller may see."""
    return JsonResponse({"runs": here.store.starred(caller.name, visible_projects(caller))})


@router.put("/runs/{run_id}/star", response_model=ListedRun, responses=refusals(409, 507))
def star_run(run_id: str, here: Here, caller: Caller) -> JsonResponse:
    """Star a run: `starred:true` in a query finds it. Stars are the caller's own."""
    return _star(here, caller.name, run_id, is_starred=True)


@router.delete("/runs/{run_id}/star", response_model=ListedRun, responses=refusals(409, 507))
def unstar_run(run_id: str, here: Here, caller: Caller) -> JsonResponse:
    """Remove the caller's star."""
    return _star(here, caller.name, run_id, is_starred=False)


def _star(here: Context, user: str, run_id: str, *, is_starred: bool) -> JsonResponse:
    run = here.find(run_id)
    try:
        change_stars(here.home, here.store, user, [run.id], is_starred=is_starred)
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    return JsonResponse(waiting_row(here.store, run))
