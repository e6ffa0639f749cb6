"""/api/v1/reports: Markdown with charts and tables of runs, which the page draws."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from phalanx.server.auth.identities import Identity, Role
from phalanx.server.context import Caller, Context, Here, require_role
from phalanx.server.document_versions import changing, tagged, version_of
from phalanx.server.http import openapi
from phalanx.server.http.bodies import JsonBody, json_object
from phalanx.server.http.fields import text
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.shared_documents import MISSING, SharedDocument
from phalanx.submission.checks import check_project

LONGEST_TITLE = 200
LONGEST_REPORT = 200_000
MOST_REPORTS = 10_000
FIELDS = ("project", "title", "created_at", "created_by", "updated_at", "updated_by")
CONTENT = {"title": openapi.TEXT, "text": openapi.TEXT}

router = APIRouter(prefix="/api/v1/reports", tags=["reports"])


@router.get("")
def list_reports(
    here: Here,
    caller: Caller,
    project: Annotated[str | None, Query(max_length=500)] = None,
    limit: Annotated[int, Query(ge=0, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> JsonResponse:
    """Reports without their text, the last changed first; `count` is the total."""
    found = []
    for name in here.reports.names():
        report = here.reports.read(name)
        if report is not None and _is_shown(report, caller, project):
            found.append(_row(name, report))
    found.sort(key=lambda row: (row["updated_at"], row["id"]), reverse=True)
    return JsonResponse({"count": len(found), "reports": found[offset : offset + limit]})


@router.post("", status_code=201, openapi_extra=openapi.body({"project": openapi.TEXT, **CONTENT}, "project", "title"))
def create_report(body: JsonBody, here: Here, caller: Caller) -> JsonResponse:
    """Create a report in a project."""
    wanted = json_object(body)
    project = text(wanted, "project", 500)
    if not project:
        raise RequestError(400, "`project` is missing")
    check_project(project)
    require_role(caller, project, Role.EDITOR)
    if len(here.reports.names()) >= MOST_REPORTS:
        raise RequestError(409, f"there are {MOST_REPORTS:,} reports already", "delete some first")
    name, at = secrets.token_hex(5), _now()
    made = {"version": 1, "project": project, "created_at": at, "created_by": caller.name}
    with changing():
        report = here.reports.write(name, _changed(made, wanted, caller, at), MISSING)
    return _answer(name, report, 201)


@router.get("/{report_id}")
def show_report(report_id: str, here: Here, caller: Caller) -> JsonResponse:
    """A report with its text. The ETag is the version."""
    return _answer(report_id, _find(here, caller, report_id))


@router.put("/{report_id}", openapi_extra=openapi.body(CONTENT, "title", "text"))
def change_report(report_id: str, body: JsonBody, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Replace the title and the text. If-Match must be the ETag of the version that was changed."""
    report = _find(here, caller, report_id)
    require_role(caller, str(report.value["project"]), Role.EDITOR)
    changed = _changed(report.value, json_object(body), caller, _now())
    with changing():
        return _answer(report_id, here.reports.write(report_id, changed, version_of(request)))


@router.delete("/{report_id}")
def delete_report(report_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Delete a report. If-Match must be the ETag of its version."""
    report = _find(here, caller, report_id)
    require_role(caller, str(report.value["project"]), Role.EDITOR)
    with changing():
        here.reports.remove(report_id, version_of(request))
    return JsonResponse({"deleted": report_id})


def _find(here: Context, caller: Identity, name: str) -> SharedDocument:
    """Raises RequestError, the same for a report that is hidden and for none."""
    report = here.reports.read(name)
    if report is None or not _is_shown(report, caller, None):
        raise RequestError(404, f"there is no report `{name[:100]}`", "GET /api/v1/reports lists all reports")
    return report


def _is_shown(report: SharedDocument, caller: Identity, project: str | None) -> bool:
    own = str(report.value.get("project"))
    return project in (None, own) and caller.has(Role.VIEWER, own)


def _changed(report: dict[str, Any], wanted: dict[str, Any], caller: Identity, at: str) -> dict[str, Any]:
    """Raises RequestError."""
    title = text(wanted, "title", LONGEST_TITLE).strip()
    if not title:
        raise RequestError(400, "`title` is missing")
    return {**report, "title": title, "text": text(wanted, "text", LONGEST_REPORT), "updated_at": at,
            "updated_by": caller.name}  # fmt: skip


def _row(name: str, report: SharedDocument) -> dict[str, Any]:
    return {"id": name, **{field: report.value.get(field) for field in FIELDS}}


def _answer(name: str, report: SharedDocument, status: int = 200) -> JsonResponse:
    return tagged({**_row(name, report), "text": report.value.get("text", "")}, report.tag, status)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
