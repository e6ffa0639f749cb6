"""The application: every group of routes, behind the middleware."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from phalanx import __version__
from phalanx.errors import CallError, StoreError, SystemFault, is_transient
from phalanx.server import api_document, static_page
from phalanx.server.auth.credentials import claim_of
from phalanx.server.auth.proxy_header import ProxyHeaderMiddleware
from phalanx.server.auth.rate_limits import RateLimits, Traffic
from phalanx.server.auth.sign_on import SignOnSettings
from phalanx.server.boards import Boards
from phalanx.server.context import Context
from phalanx.server.http.answer_cache import AnswerCache, AnswerCacheMiddleware
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import JsonResponse, RequestError, refusal_answer
from phalanx.server.http.route_table import RouteTable
from phalanx.server.http.validation import invalid_fields
from phalanx.server.live import broker
from phalanx.server.middleware import GuardMiddleware
from phalanx.server.mlflow import routes as mlflow
from phalanx.server.ops import metrics
from phalanx.server.ops.request_stats import RequestStats, RequestStatsMiddleware
from phalanx.server.ops.store_version import StoreVersion
from phalanx.server.policy import authorise, check, leaves, table
from phalanx.server.routes import (
    charts,
    code,
    compare,
    files,
    groups,
    live,
    logs,
    model_files,
    model_versions,
    models,
    own_tokens,
    pipelines,
    pods,
    previews,
    projects,
    queue,
    reports,
    retention,
    run_actions,
    run_marks,
    run_tables,
    runs,
    series,
    session,
    snapshots,
    specs,
    submissions,
    tensorboard,
    topology,
    usage,
    views,
)
from phalanx.server.routes import sign_on as sign_on_routes
from phalanx.server.saved_views import SavedViews
from phalanx.server.schemas.session import Done
from phalanx.store.series.replica_steps import ReplicaSteps

GROUPS = (
    *(submissions, snapshots, run_actions, run_marks, run_tables, views, groups, pipelines, specs, topology, usage),
    *(queue, live, projects, code, runs, series, charts, compare, tensorboard, reports, previews, files, pods, logs),
    *(model_files, model_versions, models, mlflow, retention),
    *(session, sign_on_routes, own_tokens, metrics, static_page),
)


def make_app(  # noqa: PLR0913 - the parts of a server
    context: Context,
    allowed_hosts: Iterable[str] = (),
    counting: RequestStats | None = None,
    limits: RateLimits | None = None,
    *,
    only_admins_start: bool = False,
    sign_on: SignOnSettings | None = None,
) -> FastAPI:
    """`allowed_hosts`: host names that the server answers to, besides those of this machine. `only_admins_start`:
    editors may track runs, but not start any here. Raises CallError when the sign-on cannot be used."""
    counting = counting or RequestStats(shared=context.shared)
    traffic = Traffic(limits or RateLimits(), context.shared)
    context.credentials.limit(traffic.limits, context.shared)
    context.credentials.sign_on = sign_on
    app = FastAPI(
        title="Phalanx",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    app.state.traffic = traffic
    app.state.sign_on = sign_on_routes.SignOn(sign_on, traffic.limits) if sign_on is not None else None
    app.state.document = None
    app.state.page = static_page.StaticPage()
    app.state.live = broker.EventBroker(context)
    app.state.steps = ReplicaSteps()
    app.state.boards = Boards()
    app.state.views = SavedViews(context.home.path)
    for name in ("uses", "columns", "queue", "machine", "groups"):
        setattr(app.state, name, CachedResponse[Any]())
    app.state.shares = CachedResponse[Any](4096)
    app.state.metrics = counting.metrics
    app.state.policy = table(open_metrics=counting.is_open, only_admins_start=only_admins_start)
    for group in GROUPS:
        app.router.routes.extend(group.router.routes)
    app.add_api_route("/healthz", health, methods=["GET"], tags=["server"], response_model=Done)
    app.add_api_route("/api/v1/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    for fault, handler in FAULTS.items():
        app.add_exception_handler(fault, handler)
    check(app.routes)
    app.router.middleware_stack = RouteTable(list(leaves(app.routes)), authorise, lifespan=app.router.app)
    answers = AnswerCache(StoreVersion(context).read, context.shared.changes, event_at=context.shared.event_at)
    app.add_middleware(AnswerCacheMiddleware, cache=answers)
    app.add_middleware(
        GuardMiddleware,
        credentials=context.credentials,
        audit=context.audit,
        traffic=traffic,
        names=tuple(allowed_hosts),
        shared=context.shared,
    )
    app.add_middleware(RequestStatsMiddleware, counting=counting)  # the last one added is the outermost
    if sign_on is not None and sign_on.proxy is not None:
        app.add_middleware(ProxyHeaderMiddleware, settings=sign_on.proxy)
    return app


async def health() -> JsonResponse:
    """Health check. Needs no token."""
    return JsonResponse({"ok": True})


def openapi(request: Request) -> JsonResponse:
    """The OpenAPI document of this API."""
    if request.app.state.document is None:
        request.app.state.document = api_document.document(request.app)
    return JsonResponse(request.app.state.document)


async def _refused(request: Request, fault: Exception) -> JsonResponse:
    """A status below 500 says that the same request fails again."""
    if isinstance(fault, StoreError):
        request.app.state.metrics.database_error()
    status = 503 if isinstance(fault, StoreError) or is_transient(fault) else 400
    refusal = fault if isinstance(fault, RequestError) else RequestError(status, str(fault))
    return refusal_answer(refusal, request.url.path)


async def _wrong_types(request: Request, fault: Exception) -> JsonResponse:
    assert isinstance(fault, RequestValidationError)
    errors = [{**error, "loc": error["loc"][1:]} for error in fault.errors()]  # without "query" and "path"
    return refusal_answer(invalid_fields(errors, {}), request.url.path)


async def _no_route(request: Request, fault: Exception) -> Response:
    """Only authenticated callers learn that a path does not exist."""
    assert isinstance(fault, HTTPException)
    if "route" not in request.scope:
        shown = static_page.not_found(request)
        if shown is not None:
            return shown
        try:
            claim_of(request.scope).granted()
        except RequestError as unknown:
            return refusal_answer(unknown, request.url.path)
    hint = "GET /api/v1/openapi.json lists all paths" if fault.status_code == 404 else None
    headers = dict(fault.headers or {})
    if fault.status_code == 405:  # Starlette names the methods of one route only, and a path may have several
        headers["Allow"] = ", ".join(_methods_of(request))
        hint = f"it supports {headers['Allow']}"
    message = {404: "no such path", 405: "this path does not support that method"}
    refusal = RequestError(fault.status_code, message.get(fault.status_code, str(fault.detail)), hint)
    answer = refusal_answer(refusal, request.url.path)
    answer.headers.update(headers)
    return answer


def _methods_of(request: Request) -> list[str]:
    """The methods of all routes with this path."""
    here = [route for route in leaves(request.app.routes) if route.path_regex.match(request.url.path)]
    return sorted({method for route in here for method in route.methods or ()})


FAULTS = {
    **dict.fromkeys((RequestError, CallError, SystemFault), _refused),  # also for their subclasses
    RequestValidationError: _wrong_types,
    HTTPException: _no_route,
}
