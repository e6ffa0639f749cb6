"""Server-sent events of all runs, or of one."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from phalanx.server.context import Caller, Here
from phalanx.server.live.broker import EventBroker, Subscriber

router = APIRouter(prefix="/api/v1", tags=["live"])


@router.get("/live", response_class=StreamingResponse)
async def follow_all(request: Request, caller: Caller) -> StreamingResponse:
    """Server-sent events: `ready` when nothing will be missed any more, `run` (id, status, updated_at, project) for
    every run that changed, `gone` (id) for one that was removed; of the projects that one may see."""
    live: EventBroker = request.app.state.live
    return live.answer(Subscriber(caller))


@router.get("/runs/{run_id}/live", response_class=StreamingResponse)
def follow_run(run_id: str, request: Request, here: Here, caller: Caller) -> StreamingResponse:
    """Server-sent events of one run: `ready` when nothing will be missed any more, `run` (its row), `points`, `log` (of
    which replica, when it is one), `replicas`: what to fetch again, each at most twice a second."""
    live: EventBroker = request.app.state.live
    return live.answer(Subscriber(caller, here.find(run_id).id))
