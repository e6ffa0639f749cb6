"""/api/v1/reports: Markdown with charts and tables of runs, which the page draws. /api/v1/layout: the charts that are
pinned in a project."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Query, Request

from phalanx.errors import CallError
from phalanx.home.shared_documents import MISSING
from phalanx.reports.records import Report
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.context import Caller, Context, Here, require_role
from phalanx.server.document_versions import changing, tagged, version_of
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.reports import (
    DeletedReport,
    Layout,
    LayoutChange,
    NewReport,
    ReportChange,
    ReportDetails,
    ReportPage,
    ReportRow,
)
from phalanx.submission.checks import check_project

Project = Annotated[str, Query(min_length=1, max_length=500)]

router = APIRouter(prefix="/api/v1", tags=["reports"])


@router.get("/reports", response_model=ReportPage)
def list_reports(
    here: Here,
    caller: Caller,
    project: Annotated[str | None, Query(max_length=500)] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JsonResponse:
    """Reports without their text, the last changed first."""
    found = [report for report in here.reports.all(project) if caller.has(Role.VIEWER, report.project)]
    rows = [{name: getattr(report, name) for name in ReportRow.model_fields} for report in found]
    return JsonResponse({"count": len(found), "reports": rows[offset : offset + limit]})


@router.post("/reports", status_code=201, response_model=ReportDetails, responses=refusals(409, 507))
def create_report(body: Annotated[NewReport, json_body(NewReport)], here: Here, caller: Caller) -> JsonResponse:
    """Create a report in a project."""
    check_project(body.project)
    require_role(caller, body.project, Role.EDITOR)
    with changing():
        try:
            report = here.reports.create(body.project, body.title, body.text, caller.name)
        except CallError as fault:
            raise RequestError(409, str(fault)) from None
    return _answer(report, 201)


@router.get("/reports/{report_id}", response_model=ReportDetails)
def show_report(report_id: str, here: Here, caller: Caller) -> JsonResponse:
    """A report with its text. The ETag, also `tag`, is the version."""
    return _answer(_find(here, caller, report_id))


@router.put("/reports/{report_id}", response_model=ReportDetails, responses=refusals(412, 428, 507))
def change_report(
    report_id: str,
    body: Annotated[ReportChange, json_body(ReportChange)],
    request: Request,
    here: Here,
    caller: Caller,
) -> JsonResponse:
    """Replace the title and the text. If-Match must be the ETag of the version that was changed."""
    report = _find(here, caller, report_id)
    require_role(caller, report.project, Role.EDITOR)
    with changing():
        return _answer(here.reports.change(report, body.title, body.text, caller.name, version_of(request)))


@router.delete("/reports/{report_id}", response_model=DeletedReport, responses=refusals(412, 428, 507))
def delete_report(report_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Delete a report. If-Match must be the ETag of its version."""
    report = _find(here, caller, report_id)
    require_role(caller, report.project, Role.EDITOR)
    with changing():
        here.reports.remove(report, version_of(request))
    return JsonResponse({"deleted": report_id})


@router.get("/layout", response_model=Layout)
def show_layout(project: Project, here: Here, caller: Caller) -> JsonResponse:
    """The charts that are pinned in a project, in their order. The ETag is the version."""
    require_role(caller, project, Role.VIEWER)
    found = here.layouts.read(_layout_name(project))
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
        made = here.layouts.write(_layout_name(project), kept, version_of(request))
    return tagged({"project": project, "charts": charts}, made.tag)


def _find(here: Context, caller: Identity, name: str) -> Report:
    """Raises RequestError, the same for a report that is hidden and for none."""
    report = here.reports.find(name)
    if report is None or not caller.has(Role.VIEWER, report.project):
        raise RequestError(404, f"there is no report `{name[:100]}`", "GET /api/v1/reports lists all reports")
    return report


def _answer(report: Report, status: int = 200) -> JsonResponse:
    return tagged(report._asdict(), report.tag, status)


def _layout_name(project: str) -> str:
    """A file name: a project may be called anything."""
    return sha256(project.encode("utf-8", "surrogatepass")).hexdigest()[:32]
