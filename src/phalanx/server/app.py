"""The application: every group of routes, behind the guard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from phalanx import __version__
from phalanx.errors import CallError, StoreError
from phalanx.server import (
    acting,
    charting,
    comparing,
    files,
    lines,
    live,
    metrics,
    models,
    page,
    pods,
    previewing,
    queueing,
    runs,
    series,
    signing_in,
    snapshots,
    specs,
    submitting,
    topology,
    using,
)
from phalanx.server.answers import Answer, Refusal, refusal_answer
from phalanx.server.context import Context
from phalanx.server.counting import Counted, Counting
from phalanx.server.credentials import claim_of
from phalanx.server.guarding import Guard
from phalanx.server.limiting import Limits, Traffic
from phalanx.server.mlflow import routes as mlflow
from phalanx.server.policy import authorise, check, table
from phalanx.server.remembering import Remembered
from phalanx.server.steps import Steps

GROUPS = (
    *(submitting, snapshots, acting, specs, topology, using, queueing, live),
    *(runs, series, charting, comparing, previewing, files, pods, lines, models, mlflow, signing_in, metrics, page),
)


def make_app(
    context: Context,
    allowed_hosts: Iterable[str] = (),
    counting: Counting | None = None,
    limits: Limits | None = None,
    *,
    only_admins_start: bool = False,
) -> FastAPI:
    """`allowed_hosts`: names under which the server may be asked, beside those of this machine. `only_admins_start`:
    editors track, but start nothing here."""
    counting = counting or Counting()
    traffic = Traffic(limits or Limits())
    context.credentials.limit(traffic.limits)
    app = FastAPI(
        title="Phalanx",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(authorise)],
    )
    app.state.context = context
    app.state.traffic = traffic
    app.state.page = page.Page()
    app.state.live = live.Live(context)
    app.state.steps = Steps()
    app.state.uses, app.state.columns, app.state.queue = Remembered[Any](), Remembered[Any](), Remembered[Any]()
    app.state.shares, app.state.machine = Remembered[Any](4096), Remembered[Any]()
    app.state.metrics = counting.metrics
    app.state.policy = table(open_metrics=counting.is_open, only_admins_start=only_admins_start)
    for group in GROUPS:
        app.include_router(group.router)
    app.add_api_route("/healthz", health, methods=["GET"], tags=["server"])
    app.add_api_route("/api/v1/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    for fault, handler in FAULTS.items():
        app.add_exception_handler(fault, handler)
    check(app.routes)
    app.add_middleware(
        Guard,
        credentials=context.credentials,
        audit=context.audit,
        traffic=traffic,
        names=tuple(allowed_hosts),
        changed=context.recent.forget,
    )
    app.add_middleware(Counted, counting=counting)  # the last is the outermost
    return app


async def health() -> Answer:
    """Whether somebody is there; answered to everybody."""
    return Answer({"ok": True})


async def openapi(request: Request) -> Answer:
    """What can be asked, in OpenAPI's words."""
    app: FastAPI = request.app
    return Answer(app.openapi())


async def _refused(request: Request, fault: Exception) -> Answer:
    assert isinstance(fault, Refusal)
    return refusal_answer(fault, request.url.path)


async def _wrong_call(request: Request, fault: Exception) -> Answer:
    return refusal_answer(Refusal(400, str(fault)), request.url.path)


async def _no_store(request: Request, fault: Exception) -> Answer:
    request.app.state.metrics.database_error()
    return refusal_answer(Refusal(503, str(fault)), request.url.path)


async def _wrong_types(request: Request, fault: Exception) -> Answer:
    assert isinstance(fault, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in fault.errors()[:5])
    return refusal_answer(Refusal(400, told[:1000]), request.url.path)


async def _no_route(request: Request, fault: Exception) -> Response:
    """What is not there is told only to those who may ask."""
    assert isinstance(fault, HTTPException)
    if "route" not in request.scope:
        shown = page.lost(request)
        if shown is not None:
            return shown
        try:
            claim_of(request.scope).granted()
        except Refusal as unknown:
            return refusal_answer(unknown, request.url.path)
    hint = "GET /api/v1/openapi.json tells what there is" if fault.status_code == 404 else None
    message = {404: "there is nothing at this address", 405: "this address does not take that method"}
    refusal = Refusal(fault.status_code, message.get(fault.status_code, str(fault.detail)), hint)
    answer = refusal_answer(refusal, request.url.path)
    answer.headers.update(fault.headers or {})
    return answer


FAULTS = {
    Refusal: _refused,
    CallError: _wrong_call,
    StoreError: _no_store,
    RequestValidationError: _wrong_types,
    HTTPException: _no_route,
}
