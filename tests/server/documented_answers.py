"""Compares every answer that a test gets with what the OpenAPI document promises."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import TypeAdapter, ValidationError
from starlette.routing import Match

from phalanx.server import api_document
from phalanx.server.policy import leaves
from phalanx.server.schemas.errors import Error

JSON = "application/json"
_documents: dict[frozenset[Any], dict[str, Any]] = {}  # by policy: the routes of all applications are the same


class DocumentedAnswers:
    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.routes = [route for route in leaves(app.routes) if route.include_in_schema]

    def check(self, response: httpx.Response) -> None:
        """Of the first route that takes the request, as the server finds it. A path or method that no route has is
        not documented."""
        request = response.request
        scope = {"type": "http", "method": request.method, "path": request.url.path, "root_path": ""}
        route = next((one for one in self.routes if one.matches(scope)[0] is Match.FULL), None)
        if route is None or request.method == "HEAD":
            return
        answers = self._document()["paths"][route.path_format][request.method.lower()]["responses"]
        about = f"{request.method} {route.path} answered {response.status_code}"
        assert str(response.status_code) in answers, f"{about}, which is not documented: only {sorted(answers)}"
        kind = response.headers.get("content-type", "").partition(";")[0]
        if 300 <= response.status_code < 400:  # a redirect, or unchanged: without a body
            return
        declared = route.responses.get(response.status_code, {})
        model = Error if response.status_code >= 400 else declared.get("model", route.response_model)
        if "content" in declared:
            assert kind in declared["content"] or "*/*" in declared["content"], f"{about} with {kind}"
            return
        assert kind == JSON, f"{about} with {kind}"
        try:
            TypeAdapter(model).validate_json(response.read())
        except ValidationError as fault:
            raise AssertionError(f"{about} unlike {model}: {str(fault)[:2000]}") from None

    def _document(self) -> dict[str, Any]:
        """Made once for all applications of a policy: it takes half a second of CPU."""
        policy = frozenset(self.app.state.policy.items())
        if policy not in _documents:
            _documents[policy] = api_document.document(self.app)
        return _documents[policy]
