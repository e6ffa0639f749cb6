"""Finds the route of a request, has the caller authorised, and calls the route.

FastAPI tries the patterns of all routes one after the other, twice for included routers. This table tries those that
begin with the same segments as the path, in the same order. As every route is called from here, none can be reached
without `authorise`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

DEPTH = 3  # segments: `/api/v1/runs`


class Found(NamedTuple):
    route: APIRoute
    params: Mapping[str, Any]


class RouteTable:
    """`lifespan` answers what is not HTTP."""

    def __init__(
        self, routes: Sequence[APIRoute], authorise: Callable[[Request], Awaitable[None]], lifespan: ASGIApp
    ) -> None:
        self.authorise = authorise
        self.lifespan = lifespan
        starts = {_start(route.path) for route in routes}
        self._by_start = {start: _among(routes, start) for start in starts if "{" not in start}
        self._variable = [route for route in routes if "{" in _start(route.path)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.lifespan(scope, receive, send)
            return
        found = self.find(scope["method"], scope["path"])
        if found is None:
            raise HTTPException(404)
        scope["route"], scope["endpoint"], scope["path_params"] = found.route, found.route.endpoint, found.params
        if scope["method"] in (found.route.methods or ()):
            await self.authorise(Request(scope, receive, send))
        await found.route.handle(scope, receive, send)

    def find(self, method: str, path: str) -> Found | None:
        """The first route with this path and method; otherwise the first with this path, which rejects the method."""
        other = None
        for route in self._by_start.get(_start(path), self._variable):
            match = route.path_regex.match(path)
            if match is not None:
                found = Found(route, _converted(route, match.groupdict()))
                if method in (route.methods or ()):
                    return found
                other = other or found
        return other


def _start(path: str) -> str:
    return "/".join(path.split("/", DEPTH + 1)[: DEPTH + 1])


def _among(routes: Sequence[APIRoute], start: str) -> list[APIRoute]:
    return [route for route in routes if _start(route.path) == start or "{" in _start(route.path)]


def _converted(route: APIRoute, params: dict[str, str]) -> dict[str, Any]:
    return {name: route.param_convertors[name].convert(value) for name, value in params.items()}
