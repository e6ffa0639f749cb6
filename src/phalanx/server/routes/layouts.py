"""/api/v1/layout: the charts that are pinned in a project."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from phalanx.server.auth.identities import Role
from phalanx.server.context import Caller, Here, require_role
from phalanx.server.document_versions import changing, tagged, version_of
from phalanx.server.http import openapi
from phalanx.server.http.bodies import JsonBody, json_object
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.shared_documents import MISSING

MOST_CHARTS = 200
MOST_METRICS = 20
LONGEST_NAME = 600

Project = Annotated[str, Query(min_length=1, max_length=500)]
CHART = {
    "type": "object",
    "required": ["metrics"],
    "properties": {"title": openapi.TEXT, "metrics": openapi.TEXTS, "x": openapi.TEXT, "log_y": openapi.FLAG},
}

router = APIRouter(prefix="/api/v1", tags=["layouts"])


@router.get("/layout")
def show_layout(project: Project, here: Here, caller: Caller) -> JsonResponse:
    """The charts that are pinned in a project, in their order. The ETag is the version."""
    require_role(caller, project, Role.VIEWER)
    found = here.layouts.read(_name(project))
    charts = [] if found is None else found.value.get("charts", [])
    return tagged({"project": project, "charts": charts}, MISSING if found is None else found.tag)


@router.put("/layout", openapi_extra=openapi.body({"charts": {"type": "array", "items": CHART}}, "charts"))
def change_layout(project: Project, body: JsonBody, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Replace the pinned charts. If-Match must be the ETag of the version that was changed."""
    require_role(caller, project, Role.EDITOR)
    charts = _charts(json_object(body))
    with changing():
        kept = {"version": 1, "project": project, "charts": charts, "updated_by": caller.name}
        made = here.layouts.write(_name(project), kept, version_of(request))
    return tagged({"project": project, "charts": charts}, made.tag)


def _name(project: str) -> str:
    """A file name: a project may be called anything."""
    return sha256(project.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _charts(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Raises RequestError."""
    charts = wanted.get("charts")
    if not isinstance(charts, list) or len(charts) > MOST_CHARTS:
        raise RequestError(400, f"`charts` must be a list of up to {MOST_CHARTS} charts")
    return [_chart(chart, f"charts[{place}]") for place, chart in enumerate(charts)]


def _chart(chart: Any, where: str) -> dict[str, Any]:
    names: Any = chart.get("metrics") if isinstance(chart, dict) else None
    is_list = isinstance(names, list) and 0 < len(names) <= MOST_METRICS
    if not is_list or not all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in names):
        raise RequestError(400, f"`{where}.metrics` must be a list of 1 to {MOST_METRICS} names of metrics")
    title, x, log_y = chart.get("title", ""), chart.get("x", ""), chart.get("log_y", False)
    if not isinstance(title, str) or len(title) > LONGEST_NAME or not isinstance(x, str) or len(x) > LONGEST_NAME:
        raise RequestError(400, f"`{where}.title` and `.x` must be strings of up to {LONGEST_NAME} characters")
    if not isinstance(log_y, bool):
        raise RequestError(400, f"`{where}.log_y` must be true or false")
    return {"title": title, "metrics": list(dict.fromkeys(names)), "x": x, "log_y": log_y}
