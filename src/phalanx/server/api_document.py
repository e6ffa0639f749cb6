"""The OpenAPI document: made from the routes, their models and the access policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from phalanx.server.http.answer_cache import REVALIDATED
from phalanx.server.http.error_statuses import STATUSES
from phalanx.server.http.request_models import JsonBodyReader
from phalanx.server.policy import Rule, leaves
from phalanx.server.schemas.errors import Error

REFERENCE = "#/components/schemas/{model}"
DESCRIPTION = """Requests carry a token: `Authorization: Bearer TOKEN`. Errors have the body `Error`.

MLflow's API at `/api/2.0/mlflow` is not described here: it is MLflow's own, and its documentation describes it."""
ALWAYS = (400, 403, 414, 421, 429, 431, 500, 503)
WITH_BODY = (408, 413)
SCHEMES: dict[str, dict[str, Any]] = {
    "token": {"type": "http", "scheme": "bearer", "description": "a token of `phalanx token create`"},
    "password": {"type": "http", "scheme": "basic", "description": "name and password of a user"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "description": "the cookie of `POST /api/v1/session`. Changes need the `Origin` of the server's own page",
    },
}
ACCESS = {
    Rule.OPEN: "everyone",
    Rule.ANY_TOKEN: "every valid token, also that of a run",
    Rule.SIGNED_IN: "every user; lists show what the caller may see",
    Rule.VIEW: "viewers of the run's project, and the run itself",
    Rule.PERSONAL: "viewers of the run's project",
    Rule.EDIT: "editors of the run's project, and the run itself",
    Rule.MANAGE: "editors of the run's project",
    Rule.VIEW_ALL: "viewers of all projects",
    Rule.EDIT_SOME: "editors of the project that the request names",
    Rule.ADMIN: "admins",
    Rule.POD: "the attempt of the run itself",
}


def document(app: FastAPI) -> dict[str, Any]:
    for route in leaves(app.routes):
        route.unique_id = route.name
    made = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    schemas: dict[str, Any] = made["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own; ours is `Error`
        schemas.pop(unused, None)
    routes = [route for route in leaves(app.routes) if route.include_in_schema]
    schemas |= _schemas(routes)
    for route in routes:
        for method in route.methods or ():
            rule = app.state.policy[method, route.path]
            operation = made["paths"][route.path_format][method.lower()]
            _complete(operation, route, rule)
            if method == "GET" and route.path.startswith(REVALIDATED):
                operation["responses"]["304"] = {"description": "not changed since `If-None-Match`"}
    made["components"]["responses"] = {
        str(status): {"description": text, "content": {"application/json": {"schema": _reference("Error")}}}
        for status, text in STATUSES.items()
    }
    session = {**SCHEMES["session"], "name": app.state.context.sessions.cookie}
    made["components"]["securitySchemes"] = {**SCHEMES, "session": session}
    return made


def _schemas(routes: list[APIRoute]) -> dict[str, Any]:
    readers = [reader for reader in map(body_reader, routes) if reader is not None]
    inputs = [(model, "validation") for model in dict.fromkeys(reader.model for reader in readers)]
    _, found = models_json_schema([*inputs, (Error, "serialization")], ref_template=REFERENCE)  # type: ignore[list-item]
    return dict(found["$defs"])


def body_reader(route: APIRoute) -> JsonBodyReader[Any] | None:
    return next(_readers(route.dependant), None)


def _readers(dependant: Dependant) -> Iterator[JsonBodyReader[Any]]:
    for one in dependant.dependencies:
        if isinstance(one.call, JsonBodyReader):
            yield one.call
        yield from _readers(one)


def _reference(model: str) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=model)}


def _complete(operation: dict[str, Any], route: APIRoute, rule: Rule) -> None:
    reader = body_reader(route)
    if reader is not None:
        content = {"application/json": {"schema": _reference(reader.model.__name__)}}
        operation["requestBody"] = {"required": reader.is_required, "content": content}
    operation["security"] = _security(rule)
    operation["description"] = f"{operation.get('description', '')}\n\nAccess: {ACCESS[rule]}.".strip()
    declared: Mapping[int | str, Any] = route.responses
    errors = {int(status) for status in declared if int(status) >= 400}
    errors |= set(errors_of(rule, route, is_json=reader is not None, has_body="requestBody" in operation))
    kept = {status: answer for status, answer in operation["responses"].items() if int(status) < 400}
    refused = {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(errors)}
    operation["responses"] = kept | refused


def _security(rule: Rule) -> list[dict[str, list[str]]]:
    if rule is Rule.OPEN:
        return []
    return [{"token": []}] if rule is Rule.POD else [{name: []} for name in SCHEMES]


def errors_of(rule: Rule, route: APIRoute, *, is_json: bool, has_body: bool) -> Iterator[int]:
    """The errors that follow from what a route is."""
    yield from ALWAYS
    if rule is not Rule.OPEN:
        yield 401
    if "{" in route.path:
        yield 404
    if has_body:
        yield from WITH_BODY
    if is_json:
        yield 415
