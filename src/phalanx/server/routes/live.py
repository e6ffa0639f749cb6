"""Server-sent events of all runs, or of one."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from phalanx.server.context import Caller, Here
from phalanx.server.http.documented_content import content
from phalanx.server.live.broker import EventBroker, Subscriber

router = APIRouter(prefix="/api/v1", tags=["live"])


@router.get("/live", response_class=StreamingResponse, responses=content("text/event-stream"))
async def follow_all(request: Request, caller: Caller) -> StreamingResponse:
    """Server-sent events: `ready` when no later change will be missed, `run` (id, status, updated_at, project) for
    every changed run, `gone` (id) for a removed one; limited to projects that the caller may see."""
    live: EventBroker = request.app.state.live
    return live.answer(Subscriber(caller))


@router.get("/runs/{run_id}/live", response_class=StreamingResponse, responses=content("text/event-stream"))
def follow_run(run_id: str, request: Request, here: Here, caller: Caller) -> StreamingResponse:
    """Server-sent events of one run: `ready` when no later change will be missed; `run` (its row), `points`, `log`
    (with the replica, if it is one) and `replicas` name what to fetch again, each at most twice a second."""
    live: EventBroker = request.app.state.live
    return live.answer(Subscriber(caller, here.find(run_id).id))
