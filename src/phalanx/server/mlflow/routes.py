"""The addresses of MLflow's API: the plain one, and one that names the calling replica."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from phalanx.errors import CallError, StoreError, SystemFault, is_transient
from phalanx.server.auth.credentials import identity_of
from phalanx.server.context import Here
from phalanx.server.http.bodies import JsonBody, json_object
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.mlflow import artifacts, experiments, logged_models, metrics, models, runs, tracking
from phalanx.server.mlflow.calls import CALLS, Call, CallHandler
from phalanx.server.mlflow.errors import MlflowError
from phalanx.server.mlflow.replica_prefix import PrefixAddress
from phalanx.server.policy import PREFIXES

GROUPS = (experiments, runs, tracking, metrics, models, logged_models, artifacts)  # importing them fills CALLS
METHODS = ["GET", "POST", "PATCH", "DELETE"]
UNSUPPORTED = (
    *("traces", "unified-traces", "assessments", "issues", "label-schemas", "review-queues", "scorers", "datasets"),
    *("gateway", "prompt-optimization", "webhooks", "workspaces", "jobs"),
)
SERVED = "3.0.0"  # clients that send traces ask for the version, and send none to one of this age
INFO = {
    "store_type": None,
    "workspaces_enabled": False,
    "trace_archival_enabled": False,
    "multipart_uploads_enabled": False,
    "multipart_downloads_enabled": False,
}

router = APIRouter(include_in_schema=False)


def answer(path: str, request: Request, here: Here, replica: PrefixAddress, body: JsonBody) -> Response:
    try:
        entry, steps = entry_of(request.method, path)
        fields = _query(request) if request.method == "GET" else json_object(body)
        call = Call(here, identity_of(request.scope), fields, replica, steps)
        if not entry.reads:
            call.check_edits_some()  # in addition to the checks of the call itself
        found = entry.handler(call)
        if not entry.reads:
            request.scope["state"]["about"] = {"run": _run_of(fields, found)}  # for the audit log
        return JsonResponse(found)
    except MlflowError as fault:
        return JsonResponse(fault.body(), fault.status)
    except (CallError, SystemFault, RequestError) as fault:
        if isinstance(fault, StoreError) or is_transient(fault):
            return JsonResponse({"error_code": "TEMPORARILY_UNAVAILABLE", "message": str(fault)}, 503)
        status = fault.status if isinstance(fault, RequestError) else 400
        code = {404: "RESOURCE_DOES_NOT_EXIST", 403: "PERMISSION_DENIED"}.get(status, "INVALID_PARAMETER_VALUE")
        return JsonResponse({"error_code": code, "message": str(fault)}, status)
    except FileNotFoundError:
        return JsonResponse({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "the run was removed meanwhile"}, 404)
    except OSError as fault:
        message = f"cannot store this: {(fault.strerror or str(fault)).lower()}"
        return JsonResponse({"error_code": "INTERNAL_ERROR", "message": message}, 507)


def _run_of(fields: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """The run that a call changed or created."""
    try:
        return str(found["run"]["info"]["run_id"])
    except (LookupError, TypeError):
        named = fields.get("run_id") or fields.get("run_uuid")
        return named if isinstance(named, str) else None


def entry_of(method: str, path: str) -> tuple[CallHandler, tuple[str, ...]]:
    """The handler of a call, and the matched parts of its path. Raises MlflowError."""
    path = path.strip("/")
    entry = CALLS.get((method, path))
    if entry is not None:
        return entry, ()
    steps = path.split("/")
    for pattern, places in _PATTERNS.get(len(steps), ()):
        wanted = "/".join("*" if place in places else step for place, step in enumerate(steps))
        entry = CALLS.get((method, pattern)) if wanted == pattern else None
        if entry is not None:
            return entry, tuple(steps[place] for place in places)
    if steps[0] in UNSUPPORTED:
        raise MlflowError(f"`{steps[0]}` are not supported: Phalanx tracks training", "NOT_IMPLEMENTED")
    raise MlflowError(f"there is no {method} {path[:200]!r}", "ENDPOINT_NOT_FOUND")


def _patterns() -> dict[int, list[tuple[str, tuple[int, ...]]]]:
    """Patterns with a `*`, by number of parts."""
    found: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for path in dict.fromkeys(path for _, path in CALLS if "*" in path):
        steps = path.split("/")
        found.setdefault(len(steps), []).append((path, tuple(n for n, step in enumerate(steps) if step == "*")))
    return found


_PATTERNS = _patterns()


def _query(request: Request) -> dict[str, Any]:
    names = list(dict.fromkeys(request.query_params.keys()))
    lists = {name: request.query_params.getlist(name) for name in names}
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}


def server_info(_: PrefixAddress) -> Response:
    return JsonResponse(INFO)


def version(_: PrefixAddress) -> Response:
    return PlainTextResponse(SERVED)


def health(_: PrefixAddress) -> Response:
    return PlainTextResponse("OK")


for prefix in PREFIXES:
    for api in ("/api/2.0", "/ajax-api/2.0"):
        router.add_api_route(f"{prefix}{api}/mlflow/{{path:path}}", answer, methods=METHODS)
    for api in ("/api/3.0", "/ajax-api/3.0"):
        router.add_api_route(f"{prefix}{api}/mlflow/server-info", server_info, methods=["GET"])
        router.add_api_route(f"{prefix}{api}/mlflow/{{path:path}}", answer, methods=METHODS)
    for address, show in (("version", version), ("health", health)):
        router.add_api_route(f"{prefix}/{address}", show, methods=["GET"])
    artifacts.add_routes(router, prefix)
