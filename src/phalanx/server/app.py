"""The application: every group of routes, behind the guard."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from phalanx import __version__
from phalanx.errors import CallError, StoreError
from phalanx.server import files, models, runs, series
from phalanx.server.answers import Answer, Refusal, refusal_answer
from phalanx.server.context import READING, Context
from phalanx.server.guarding import Guard
from phalanx.server.mlflow import routes as mlflow


def make_app(context: Context, allowed_hosts: Iterable[str] = ()) -> FastAPI:
    """`allowed_hosts`: names under which the server may be asked, beside those of this machine."""
    app = FastAPI(
        title="Phalanx", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.state.context = context
    for group in (runs, series, files, models, mlflow):
        app.include_router(group.router)
    app.add_api_route("/healthz", health, methods=["GET"], tags=["server"])
    app.add_api_route("/api/v1/openapi.json", openapi, methods=["GET"], dependencies=READING, include_in_schema=False)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(CallError, _wrong_call)
    app.add_exception_handler(StoreError, _no_store)
    app.add_exception_handler(RequestValidationError, _wrong_types)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_middleware(Guard, tokens=context.tokens, names=tuple(allowed_hosts))
    return app


async def health() -> Answer:
    """Whether somebody is there. The only thing that is answered without a token."""
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
    return refusal_answer(Refusal(503, str(fault)), request.url.path)


async def _wrong_types(request: Request, fault: Exception) -> Answer:
    assert isinstance(fault, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in fault.errors()[:5])
    return refusal_answer(Refusal(400, told[:1000]), request.url.path)


async def _no_route(request: Request, fault: Exception) -> Answer:
    assert isinstance(fault, HTTPException)
    hint = "GET /api/v1/openapi.json tells what there is" if fault.status_code == 404 else None
    message = {404: "there is nothing at this address", 405: "this address does not take that method"}
    refusal = Refusal(fault.status_code, message.get(fault.status_code, str(fault.detail)), hint)
    answer = refusal_answer(refusal, request.url.path)
    answer.headers.update(fault.headers or {})
    return answer
