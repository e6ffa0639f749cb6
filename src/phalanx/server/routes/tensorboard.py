"""POST /api/v1/tensorboard: show runs in TensorBoard."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial
from shlex import quote
from typing import Annotated, Any

from fastapi import APIRouter, Request

from phalanx import run_paths
from phalanx.boards.board import MOST_RUNS
from phalanx.boards.log_folder import HomeRunData
from phalanx.server.auth.identities import Identity
from phalanx.server.boards import Boards
from phalanx.server.context import Caller, Context, Here, visible_projects
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.charts import visible_runs
from phalanx.server.schemas.tensorboard import BoardAddress, BoardRequest
from phalanx.store import Run
from phalanx.store.kinds import WHOLES
from phalanx.store.project_scope import ProjectScope
from phalanx.store.series.run_series import RunSeries

FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.post("/tensorboard", response_model=BoardAddress, responses=refusals(404))
def open_tensorboard(
    body: Annotated[BoardRequest, json_body(BoardRequest)], request: Request, here: Here, caller: Caller
) -> JsonResponse:
    """Show runs in TensorBoard: `runs` (ids) or `query`. To a caller on the server's own machine it returns the `url`
    of a TensorBoard on loopback, which it starts if none shows the same runs, and which ends when it is idle. To others
    `url` is null; `command` is the command to run instead."""
    runs, query = list(dict.fromkeys(body.runs)), body.query
    if bool(runs) == bool(query):
        raise RequestError(400, "name `runs` or a `query`, and not both")
    projects = visible_projects(caller)
    words = [quote(run.id) for run in visible_runs(here, caller, runs)] if runs else ["-q", quote(query)]
    choose = _choice(here, caller, runs, query, projects)
    if not choose():
        raise RequestError(404, "no matching runs", "GET /api/v1/runs lists all runs")
    url = None
    if _is_here(request):
        boards: Boards = request.app.state.boards
        seen = None if projects is None else tuple(sorted(projects))
        url = boards.open((tuple(sorted(runs)), query, seen), choose, partial(_data_of, here))
    return JsonResponse({"url": url, "command": " ".join(["phalanx", "tensorboard", *words])})


def _choice(
    here: Context, caller: Identity, runs: list[str], query: str, projects: ProjectScope | None
) -> Callable[[], list[Run]]:
    """The store is that of the calling thread, so the function may be called in any."""

    def choose() -> list[Run]:
        found = visible_runs(here, caller, runs) if runs else []
        groups = [run for run in found if run.kind in WHOLES]
        for wanted in [query] if query else [f"group:{run.id}" for run in groups]:
            found += here.store.runs(wanted, "created_at", MOST_RUNS, project=projects)
        return list({run.id: run for run in found if run.kind not in WHOLES}.values())

    return choose


def _data_of(here: Context, run: Run) -> HomeRunData:
    folder = here.home.run(run.id).path
    return HomeRunData(folder / run_paths.OUTPUTS, partial(RunSeries, folder))


def _is_here(request: Request) -> bool:
    """Whether the caller is on this machine. A proxy would be, too, but it says for whom it asks."""
    headers: Mapping[str, Any] = request.headers
    if request.client is None or any(name in headers for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
