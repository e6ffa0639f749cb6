"""The table of routes finds what trying all routes one after the other finds, and authorises every call."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match

from phalanx.server.app import GROUPS
from phalanx.server.http.route_table import RouteTable
from phalanx.server.policy import Rule, leaves
from tests.examples import examples
from tests.server.people import filled, routes
from tests.server.site import Site

ROUTES = [route for group in GROUPS for route in leaves(group.router.routes)]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


async def nobody(*_: Any) -> None:
    raise AssertionError("no request was made")


TABLE = RouteTable(ROUTES, nobody, lifespan=nobody)
paths = st.one_of(
    st.sampled_from(ROUTES).map(lambda route: filled(route.path, "r1", "a/b")),
    st.tuples(st.sampled_from(ROUTES), st.sampled_from(["/", "/x", "//", "/runs", "?", "\n"])).map(
        lambda both: filled(both[0].path) + both[1]
    ),
    st.lists(st.sampled_from(["", "api", "v1", "runs", "2.0", "mlflow", "models", "tracked", "1", "%2F", "x"])).map(
        lambda parts: "/" + "/".join(parts)
    ),
)


def tried(method: str, path: str) -> tuple[APIRoute, Any] | None:
    """As Starlette does."""
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    found = [(match, route, child) for route in ROUTES for match, child in [route.matches(scope)] if match]
    full = [each for each in found if each[0] is Match.FULL]
    partial = [each for each in found if each[0] is Match.PARTIAL]
    return next(((route, child["path_params"]) for _, route, child in [*full, *partial]), None)


@examples(400)
@given(st.sampled_from(METHODS), paths)
def test_the_table_finds_what_trying_all_routes_finds(method: str, path: str) -> None:
    """Except that some paths with a line break at their end, which Starlette takes for nothing, do not exist."""
    found = TABLE.find(method, path)
    is_same = (found if found is None else (found.route, dict(found.params))) == tried(method, path)
    assert is_same or (found is None and path.endswith("\n"))


def test_every_route_is_found() -> None:
    for route in ROUTES:
        for method in route.methods or ():
            found = TABLE.find(method, filled(route.path))
            assert found is not None
            assert method in (found.route.methods or ())


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/api/v1/runs//", "/API/v1/runs", "//api/v1/runs", "/api/v1/runs/"]
)
def test_a_path_that_is_almost_one_is_closed(site: Site, path: str) -> None:
    status, _ = site.raw("GET", path)
    assert status in (400, 404)
    assert site.client.get("/api/v1/nothing").status_code == 401


@pytest.mark.slow
def test_no_spelling_of_a_path_avoids_authorisation(site: Site) -> None:
    for method, path, rule in routes(site):
        for end in ("", "%0A", "/", "%00", "%2F"):
            if rule is not Rule.OPEN:
                answer = site.client.request(method, filled(path) + end)
                assert answer.status_code in (400, 401, 404, 405), (method, path, end)
