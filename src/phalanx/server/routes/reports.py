"""/api/v1/reports: Markdown with charts and tables of runs, which the page draws. /api/v1/layout: the charts that are
pinned in a project."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

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
    Report,
    ReportChange,
    ReportPage,
    ReportRow,
)
from phalanx.server.shared_documents import MISSING, SharedDocument
from phalanx.submission.checks import check_project

MOST_REPORTS = 10_000

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
    found = []
    for name in here.reports.names():
        report = here.reports.read(name)
        if report is not None and _is_shown(report, caller, project):
            found.append(_row(name, report))
    found.sort(key=lambda row: (row["updated_at"], row["id"]), reverse=True)
    return JsonResponse({"count": len(found), "reports": found[offset : offset + limit]})


@router.post("/reports", status_code=201, response_model=Report, responses=refusals(409, 507))
def create_report(body: Annotated[NewReport, json_body(NewReport)], here: Here, caller: Caller) -> JsonResponse:
    """Create a report in a project."""
    check_project(body.project)
    require_role(caller, body.project, Role.EDITOR)
    if len(here.reports.names()) >= MOST_REPORTS:
        raise RequestError(409, f"there are {MOST_REPORTS:,} reports already", "delete some first")
    name, at = secrets.token_hex(5), _now()
    made = {"version": 1, "project": body.project, "created_at": at, "created_by": caller.name}
    with changing():
        report = here.reports.write(name, _changed(made, body, caller, at), MISSING)
    return _answer(name, report, 201)


@router.get("/reports/{report_id}", response_model=Report)
def show_report(report_id: str, here: Here, caller: Caller) -> JsonResponse:
    """A report with its text. The ETag is the version."""
    return _answer(report_id, _find(here, caller, report_id))


@router.put("/reports/{report_id}", response_model=Report, responses=refusals(412, 428, 507))
def change_report(
    report_id: str,
    body: Annotated[ReportChange, json_body(ReportChange)],
    request: Request,
    here: Here,
    caller: Caller,
) -> JsonResponse:
    """Replace the title and the text. If-Match must be the ETag of the version that was changed."""
    report = _find(here, caller, report_id)
    require_role(caller, str(report.value["project"]), Role.EDITOR)
    changed = _changed(report.value, body, caller, _now())
    with changing():
        return _answer(report_id, here.reports.write(report_id, changed, version_of(request)))


@router.delete("/reports/{report_id}", response_model=DeletedReport, responses=refusals(412, 428, 507))
def delete_report(report_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Delete a report. If-Match must be the ETag of its version."""
    report = _find(here, caller, report_id)
    require_role(caller, str(report.value["project"]), Role.EDITOR)
    with changing():
        here.reports.remove(report_id, version_of(request))
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


def _find(here: Context, caller: Identity, name: str) -> SharedDocument:
    """Raises RequestError, the same for a report that is hidden and for none."""
    report = here.reports.read(name)
    if report is None or not _is_shown(report, caller, None):
        raise RequestError(404, f"there is no report `{name[:100]}`", "GET /api/v1/reports lists all reports")
    return report


def _is_shown(report: SharedDocument, caller: Identity, project: str | None) -> bool:
    own = str(report.value.get("project"))
    return project in (None, own) and caller.has(Role.VIEWER, own)


def _changed(report: dict[str, Any], body: NewReport | ReportChange, caller: Identity, at: str) -> dict[str, Any]:
    return {**report, "title": body.title.strip(), "text": body.text, "updated_at": at, "updated_by": caller.name}


def _row(name: str, report: SharedDocument) -> dict[str, Any]:
    fields = ReportRow.model_fields.keys() - {"id"}
    return {"id": name, **{field: report.value.get(field) for field in sorted(fields)}}


def _answer(name: str, report: SharedDocument, status: int = 200) -> JsonResponse:
    return tagged({**_row(name, report), "text": report.value.get("text", "")}, report.tag, status)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _layout_name(project: str) -> str:
    """A file name: a project may be called anything."""
    return sha256(project.encode("utf-8", "surrogatepass")).hexdigest()[:32]
