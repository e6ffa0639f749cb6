"""Access policy: one table of who may use which path. A path that is not in it is denied, and a server whose table has
a gap does not start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from phalanx.server import static_page
from phalanx.server.auth.credentials import SAFE_METHODS, claim_of
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.auth.rate_limits import Traffic
from phalanx.server.context import Context, require_role, run_not_found
from phalanx.server.http.bodies import json_bytes
from phalanx.server.http.responses import RequestError


class Rule(Enum):
    OPEN = auto()  # no authentication: what a browser needs before sign-in
    ANY_TOKEN = auto()  # every valid token, including a run's own
    SIGNED_IN = auto()  # a user or program; the handler filters by `identity.projects(Role.VIEWER)`
    VIEW = auto()  # viewers of the project of the run in the path, and the run itself
    PERSONAL = auto()  # viewers of it, but not the run itself: changes only what is the caller's own
    EDIT = auto()  # editors of it, and the run itself
    MANAGE = auto()  # editors of it, but not the run itself
    VIEW_ALL = auto()  # viewers of all projects
    EDIT_SOME = auto()  # editors of any project; the handler must call `require` for the requested one
    ADMIN = auto()  # the role on all projects
    POD = auto()  # only the attempt in the path itself
    MLFLOW = auto()  # signed in, or a run at its own address; every call checks what it accesses


V1 = "/api/v1"
RUN = f"{V1}/runs/{{run_id}}"
GROUP = f"{V1}/groups/{{run_id}}"
PIPELINE = f"{V1}/pipelines/{{run_id}}"
POD = f"{V1}/pods/{{run_id}}/{{attempt}}"

REPLICA_PREFIX = "/tracked/{run_id}/{attempt}/{replica}"
PREFIXES = ("", REPLICA_PREFIX)  # MLflow's prefixes: of the server, or of one replica

POLICY: dict[tuple[str, str], Rule] = {
    ("GET", "/healthz"): Rule.OPEN,
    ("GET", "/metrics"): Rule.VIEW_ALL,
    ("GET", f"{V1}/openapi.json"): Rule.SIGNED_IN,
    ("POST", f"{V1}/session"): Rule.OPEN,
    ("GET", f"{V1}/session"): Rule.ANY_TOKEN,
    ("DELETE", f"{V1}/session"): Rule.OPEN,
    ("GET", f"{V1}/sign-on"): Rule.OPEN,
    ("GET", f"{V1}/sign-on/start"): Rule.OPEN,
    ("GET", f"{V1}/sign-on/callback"): Rule.OPEN,
    ("GET", f"{V1}/session/tokens"): Rule.SIGNED_IN,
    ("POST", f"{V1}/session/tokens"): Rule.SIGNED_IN,
    ("DELETE", f"{V1}/session/tokens/{{name}}"): Rule.SIGNED_IN,
    ("GET", f"{V1}/audit"): Rule.ADMIN,
    ("GET", f"{V1}/retention"): Rule.ADMIN,
    ("POST", f"{V1}/retention"): Rule.ADMIN,
    # runs
    ("GET", f"{V1}/runs"): Rule.SIGNED_IN,
    ("GET", f"{V1}/projects"): Rule.SIGNED_IN,
    ("POST", f"{V1}/projects"): Rule.EDIT_SOME,
    ("GET", f"{V1}/projects/{{name:path}}"): Rule.SIGNED_IN,
    ("PATCH", f"{V1}/projects/{{name:path}}"): Rule.EDIT_SOME,
    ("DELETE", f"{V1}/projects/{{name:path}}"): Rule.EDIT_SOME,
    ("POST", f"{V1}/runs"): Rule.EDIT_SOME,
    ("GET", RUN): Rule.VIEW,
    ("PATCH", RUN): Rule.EDIT,
    ("POST", f"{RUN}/finish"): Rule.EDIT,
    ("POST", f"{RUN}/beat"): Rule.EDIT,
    ("GET", f"{V1}/runs/columns"): Rule.SIGNED_IN,
    ("GET", f"{V1}/runs/grouped"): Rule.SIGNED_IN,
    ("GET", f"{V1}/runs.csv"): Rule.SIGNED_IN,
    ("GET", f"{V1}/stars"): Rule.SIGNED_IN,
    ("GET", f"{V1}/views"): Rule.SIGNED_IN,
    ("POST", f"{V1}/views"): Rule.SIGNED_IN,
    ("DELETE", f"{V1}/views/{{view_id}}"): Rule.SIGNED_IN,
    ("GET", f"{V1}/groups"): Rule.SIGNED_IN,
    ("GET", f"{V1}/queue"): Rule.SIGNED_IN,
    ("GET", f"{V1}/machine"): Rule.SIGNED_IN,
    ("GET", f"{V1}/live"): Rule.SIGNED_IN,
    ("POST", f"{V1}/runs/submit"): Rule.EDIT_SOME,
    ("POST", f"{V1}/runs/submit-many"): Rule.EDIT_SOME,
    ("POST", f"{V1}/snapshots"): Rule.EDIT_SOME,
    ("POST", f"{RUN}/tags"): Rule.EDIT,
    ("PUT", f"{RUN}/star"): Rule.PERSONAL,
    ("DELETE", f"{RUN}/star"): Rule.PERSONAL,
    ("POST", f"{RUN}/archive"): Rule.MANAGE,
    ("POST", f"{RUN}/unarchive"): Rule.MANAGE,
    ("POST", f"{RUN}/stop"): Rule.MANAGE,
    ("POST", f"{RUN}/priority"): Rule.MANAGE,
    ("POST", f"{RUN}/restart"): Rule.MANAGE,
    ("POST", f"{RUN}/copy"): Rule.MANAGE,
    ("POST", f"{RUN}/resume"): Rule.MANAGE,
    ("DELETE", RUN): Rule.MANAGE,
    ("GET", f"{RUN}/spec"): Rule.VIEW,
    ("GET", f"{RUN}/plan"): Rule.VIEW,
    ("GET", f"{RUN}/records"): Rule.VIEW,
    ("GET", f"{RUN}/code-diff"): Rule.VIEW,
    ("GET", f"{RUN}/code"): Rule.VIEW,
    ("GET", f"{RUN}/code/archive"): Rule.VIEW,
    ("GET", f"{RUN}/environment/{{replica}}"): Rule.VIEW,
    ("GET", f"{RUN}/topology"): Rule.VIEW,
    ("GET", f"{RUN}/use"): Rule.VIEW,
    ("GET", f"{RUN}/use/{{replica}}"): Rule.VIEW,
    ("GET", f"{RUN}/live"): Rule.VIEW,
    # groups
    ("GET", GROUP): Rule.VIEW,
    ("GET", f"{GROUP}/trials"): Rule.VIEW,
    ("GET", f"{GROUP}/importance"): Rule.VIEW,
    ("POST", f"{GROUP}/pause"): Rule.MANAGE,
    ("POST", f"{GROUP}/resume"): Rule.MANAGE,
    ("POST", f"{GROUP}/finish"): Rule.MANAGE,
    ("POST", f"{GROUP}/concurrency"): Rule.MANAGE,
    ("POST", f"{GROUP}/extend"): Rule.MANAGE,
    ("POST", f"{GROUP}/points"): Rule.MANAGE,
    ("GET", PIPELINE): Rule.VIEW,
    # series
    ("GET", f"{RUN}/metrics"): Rule.VIEW,
    ("GET", f"{RUN}/metrics/series"): Rule.VIEW,
    ("GET", f"{RUN}/events"): Rule.VIEW,
    ("GET", f"{RUN}/chart"): Rule.VIEW,
    ("GET", f"{V1}/charts"): Rule.SIGNED_IN,
    ("GET", f"{V1}/compare"): Rule.SIGNED_IN,
    ("POST", f"{V1}/tensorboard"): Rule.SIGNED_IN,  # shows only what the caller may see
    # reports and pinned charts
    ("GET", f"{V1}/reports"): Rule.SIGNED_IN,
    ("POST", f"{V1}/reports"): Rule.EDIT_SOME,
    ("GET", f"{V1}/reports/{{report_id}}"): Rule.SIGNED_IN,
    ("PUT", f"{V1}/reports/{{report_id}}"): Rule.EDIT_SOME,
    ("DELETE", f"{V1}/reports/{{report_id}}"): Rule.EDIT_SOME,
    ("GET", f"{V1}/layout"): Rule.SIGNED_IN,
    ("PUT", f"{V1}/layout"): Rule.EDIT_SOME,
    # files
    ("GET", f"{RUN}/outputs"): Rule.VIEW,
    ("GET", f"{RUN}/outputs/{{path:path}}"): Rule.VIEW,
    ("GET", f"{RUN}/media/{{replica}}/{{attempt}}/{{path:path}}"): Rule.VIEW,
    ("GET", f"{RUN}/logs/{{replica}}"): Rule.VIEW,
    ("GET", f"{RUN}/preview/{{path:path}}"): Rule.VIEW,
    ("GET", f"{RUN}/view/{{path:path}}"): Rule.VIEW,
    ("PUT", f"{RUN}/files/{{path:path}}"): Rule.EDIT,
    # runs in pods
    ("PUT", f"{POD}/files/{{path:path}}"): Rule.POD,
    ("GET", f"{POD}/code"): Rule.POD,
    # logs
    ("GET", f"{RUN}/logs"): Rule.VIEW,
    ("GET", f"{RUN}/lines"): Rule.VIEW,
    ("GET", f"{RUN}/lines/search"): Rule.VIEW,
    ("GET", f"{RUN}/lines/download"): Rule.VIEW,
    ("GET", f"{RUN}/first-error"): Rule.VIEW,
    # models
    ("GET", f"{V1}/models"): Rule.SIGNED_IN,
    ("GET", f"{V1}/models/-/candidates"): Rule.SIGNED_IN,
    ("PUT", f"{V1}/models/{{name}}/aliases/{{alias}}"): Rule.EDIT_SOME,
    ("DELETE", f"{V1}/models/{{name}}/aliases/{{alias}}"): Rule.EDIT_SOME,
    ("GET", f"{V1}/models/{{name}}/versions/{{number}}/download"): Rule.SIGNED_IN,
    ("GET", f"{V1}/models/{{name}}/uses"): Rule.SIGNED_IN,
    ("GET", f"{V1}/models/{{name}}/versions/{{number}}/files"): Rule.SIGNED_IN,
    ("GET", f"{V1}/models/{{name}}/versions/{{number}}/files/{{path:path}}"): Rule.SIGNED_IN,
    ("GET", f"{V1}/models/{{name:path}}"): Rule.SIGNED_IN,
}


def _mlflow() -> Iterator[tuple[str, str]]:
    for prefix in PREFIXES:
        for api in ("api", "ajax-api"):
            for version in ("2.0", "3.0"):
                for method in ("GET", "POST", "PATCH", "DELETE"):
                    yield method, f"{prefix}/{api}/{version}/mlflow/{{path:path}}"
            yield "GET", f"{prefix}/{api}/3.0/mlflow/server-info"
            artifacts = f"{prefix}/{api}/2.0/mlflow-artifacts"
            yield "GET", f"{artifacts}/artifacts"
            for method in ("GET", "PUT", "DELETE"):
                yield method, f"{artifacts}/artifacts/{{path:path}}"
            yield "POST", f"{artifacts}/mpu/{{path:path}}"
            yield "GET", f"{artifacts}/presigned/{{path:path}}"
        yield "GET", f"{prefix}/version"
        yield "GET", f"{prefix}/health"


POLICY |= dict.fromkeys(_mlflow(), Rule.MLFLOW)
POLICY |= {("GET", address): Rule.OPEN for address in (*static_page.ADDRESSES, *static_page.FILES)}

_NEEDED = {Rule.VIEW: Role.VIEWER, Rule.PERSONAL: Role.VIEWER, Rule.EDIT: Role.EDITOR, Rule.MANAGE: Role.EDITOR}


# Paths that start a command on the server's machine, as the server's user.
STARTING = {
    ("POST", f"{V1}/runs/submit"),
    ("POST", f"{V1}/runs/submit-many"),
    ("POST", f"{V1}/snapshots"),
    *(("POST", f"{RUN}/{verb}") for verb in ("restart", "copy", "resume")),
    *(("POST", f"{GROUP}/{verb}") for verb in ("resume", "concurrency", "extend", "points")),
}


def table(*, open_metrics: bool = False, only_admins_start: bool = False) -> dict[tuple[str, str], Rule]:
    """The policy of one server."""
    changed = dict.fromkeys(STARTING, Rule.ADMIN) if only_admins_start else {}
    return {**POLICY, **changed, **({("GET", "/metrics"): Rule.OPEN} if open_metrics else {})}


# Requests that occupy a thread for long or need much memory: their concurrency is limited.
COSTLY = {
    ("GET", f"{RUN}/lines/search"),
    ("GET", f"{RUN}/lines/download"),
    ("GET", f"{RUN}/chart"),
    ("GET", f"{V1}/charts"),
    ("GET", f"{V1}/compare"),
    ("GET", f"{V1}/runs/grouped"),
    ("GET", f"{V1}/runs.csv"),
    ("POST", f"{V1}/runs/submit"),
    ("POST", f"{V1}/runs/submit-many"),
    ("POST", f"{V1}/tensorboard"),
    ("GET", f"{V1}/retention"),
    ("POST", f"{V1}/retention"),
}
PIECES = {("PUT", f"{RUN}/files/{{path:path}}"), ("PUT", f"{POD}/files/{{path:path}}")}
# Packed for each request, and all pods of a run ask at once
CODE = {("GET", f"{POD}/code"), ("GET", f"{RUN}/code/archive")}
CALLS = "/mlflow/{path:path}"
COSTLY_CALLS = ("runs/search", "logged-models/search", "model-versions/search", "metrics/get-history")
# Frequent requests of tracking clients. Their permission is checked each time, but they are not in the audit log.
ROUTINE = {*PIECES, ("POST", f"{RUN}/beat")}
ROUTINE_CALLS = ("runs/log-", "runs/search", "logged-models/search", "experiments/search", "registered-models/get-")


async def authorise(request: Request) -> None:
    """Runs before every route. Raises RequestError."""
    await _permit(request)
    traffic: Traffic = request.app.state.traffic
    gate = None
    if _is_among(request.scope, COSTLY, COSTLY_CALLS):
        gate = traffic.costly
    elif _is_among(request.scope, CODE, ()):
        gate = traffic.packing
    if gate is not None:
        if request.method not in SAFE_METHODS:
            await json_bytes(request)  # before a slot is taken: who sends slowly must not hold one
        key = request.scope["state"]["key"]
        await gate.enter(key)
        request.scope["state"]["leaving"].append(partial(gate.leave, key))


def is_routine(scope: Scope) -> bool:
    return _is_among(scope, ROUTINE, ROUTINE_CALLS)


def _is_among(scope: Scope, routes: Collection[tuple[str, str]], calls: tuple[str, ...]) -> bool:
    """Whether a request is for one of these paths, or one of these calls of MLflow."""
    template = getattr(scope.get("route"), "path", "")
    if template.endswith(CALLS):
        return str(scope["path_params"].get("path", "")).startswith(calls)
    return (scope["method"], template) in routes


async def _permit(request: Request) -> None:
    rule = request.app.state.policy.get((_method(request.method), request.scope["route"].path))
    if rule is Rule.OPEN:
        return
    identity = claim_of(request.scope).granted()
    if rule is None:  # `check` prevents such a server from starting
        raise RequestError(403, "this path is closed to all callers")
    if rule is Rule.POD:
        _check_pod(identity, request.path_params)
        return
    if rule not in _NEEDED:
        _check_general(rule, identity)
        return
    run_id = str(request.path_params["run_id"])
    if identity.run_id is not None:
        _check_own(rule, identity, run_id)
        return
    needed = _NEEDED[rule]
    if not identity.has(needed):  # a role on all projects needs no lookup of the run
        here: Context = request.app.state.context
        project = await run_in_threadpool(here.project_of, run_id)
        if project is None or identity.role_on(project) is None:
            raise run_not_found(run_id)
        require_role(identity, project, needed)


def _method(method: str) -> str:
    return "GET" if method == "HEAD" else method


def _check_general(rule: Rule, identity: Identity) -> None:
    if rule in (Rule.MLFLOW, Rule.ANY_TOKEN):
        return
    if identity.run_id is not None:
        raise RequestError(403, f"this token is valid only for run {identity.run_id}")
    if rule is Rule.ADMIN and not identity.has(Role.ADMIN):
        raise RequestError(403, f"`{identity.name}` is not an admin", "this requires the role `admin` on all projects")
    if rule is Rule.VIEW_ALL and not identity.has(Role.VIEWER):
        raise RequestError(403, f"`{identity.name}` may not view all projects", "ask for the role `viewer` on `*`")
    if rule is Rule.EDIT_SOME and identity.projects(Role.EDITOR) == frozenset():
        raise RequestError(403, f"`{identity.name}` has read-only access", "ask for the role `editor` on a project")


def _check_own(rule: Rule, identity: Identity, run_id: str) -> None:
    if run_id != identity.run_id:
        raise RequestError(403, f"this token is valid only for run {identity.run_id}")
    if rule in (Rule.MANAGE, Rule.PERSONAL):
        raise RequestError(403, "a run may not do this to itself")


def _check_pod(identity: Identity, asked: Mapping[str, Any]) -> None:
    """Rejects even an admin: only a replica's own agent reports about it."""
    if identity.run_id is None:
        raise RequestError(403, "only the run itself may do this", "its agents have their own token")
    if (str(asked["run_id"]), str(asked["attempt"])) != (identity.run_id, str(identity.attempt)):
        raise RequestError(403, f"this token is valid only for attempt {identity.attempt} of run {identity.run_id}")


def check(routes: Iterable[Any]) -> None:
    """Raises RuntimeError unless every route has an entry and every entry a route."""
    found = {(method, route.path) for route in leaves(routes) for method in map(_method, route.methods or ())}
    missing, idle = sorted(found - set(POLICY)), sorted(set(POLICY) - found)
    if missing or idle:
        raise RuntimeError(f"server/policy.py lacks {missing} and has unused {idle}")


def leaves(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """Every route, including those of nested routers. Raises RuntimeError for one that `authorise` would not see."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if isinstance(route, APIRoute):
            yield route
        elif inner is not None:
            yield from leaves(inner.routes)
        else:
            raise RuntimeError(f"{route!r} bypasses the policy: add it with add_api_route")
