"""/api/v1/groups/{run_id}: the progress and the trials of a group, and changes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from fastapi import APIRouter, Query, Request

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.scheduler.search.group_report import GroupReport
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.bodies import disk_refusal
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.request_models import json_body
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import EncodedJsonResponse, JsonResponse, RequestError, encoded
from phalanx.server.run_environment import environment_for_runs
from phalanx.server.schemas.groups import (
    ChangedGroup,
    ConcurrencyChange,
    GroupDetails,
    NewPoint,
    ParamImportance,
    TrialPage,
    TrialsChange,
)
from phalanx.store import Run, Store
from phalanx.submission.group_requests import GroupRequests, InvalidRequest, require_group

KEPT_S = 3600.0  # a report only reads what is new
TAKEN_UP_S = 5.0  # how long a response waits for the scheduler to take a request
LOOK_S = 0.02

router = APIRouter(prefix="/api/v1/groups/{run_id}", tags=["groups"], responses=refusals(409))


class UpdatedReport(Protocol):
    def update(self, store: Store, run: Run, /) -> None: ...


AnyReport = TypeVar("AnyReport", bound=UpdatedReport)


class SharedReport(Generic[AnyReport]):
    """The report of one group or pipeline, for one request at a time. `make` reads it from the beginning."""

    def __init__(self, make: Callable[[Home, Store, Run], AnyReport]) -> None:
        self.lock = threading.Lock()
        self.make = make
        self.report: AnyReport | None = None

    @contextmanager
    def current(self, here: Context, run: Run) -> Iterator[AnyReport]:
        with self.lock:
            if self.report is None:
                self.report = self.make(here.home, here.store, run)
            else:
                self.report.update(here.store, run)
            yield self.report


def _reported(request: Request, here: Context, run_id: str, make: Callable[[GroupReport], Any]) -> bytes:
    group = _group(here, run_id)
    shared: CachedResponse[SharedReport[GroupReport]] = request.app.state.groups
    with shared.get(group.id, KEPT_S, lambda: SharedReport(GroupReport)).current(here, group) as report:
        return encoded(make(report))


def _group(here: Context, run_id: str) -> Run:
    """Raises RequestError."""
    run = here.find(run_id)
    try:
        require_group(run)
    except CallError as fault:
        raise RequestError(409, str(fault), f"GET /api/v1/runs/{run.id} shows it") from None
    return run


@router.get("", response_model=GroupDetails)
def show_group(run_id: str, request: Request, here: Here) -> JsonResponse:
    """The progress of a group: counts of trials by state, the best trial, the rungs, and the settings of its search.
    `seq` is the last record of its journal that was read."""

    def make(report: GroupReport) -> dict[str, Any]:
        return {**report.summary(), "settings": report.settings()}

    return EncodedJsonResponse(_reported(request, here, run_id, make))


@router.get("/trials", response_model=TrialPage)
def list_trials(  # noqa: PLR0913, PLR0917 - each is a parameter of the query
    run_id: str,
    request: Request,
    here: Here,
    sort: Literal["trial", "value"] = "trial",
    limit: Limit = 100,
    offset: Offset = 0,
    changed_after: Annotated[int, Query(ge=0, le=2**53, description="a `seq` of an earlier response")] = 0,
) -> JsonResponse:
    """A page of the trials: params, values, why they ended, and the times of each attempt. With `changed_after`, only
    those that have changed since, and those that run."""

    def make(report: GroupReport) -> dict[str, Any]:
        count, rows = report.page(sort, changed_after, offset, limit)
        return {"count": count, "seq": report.state.seq, "trials": report.with_attempts(here.store, rows)}

    key = ("trials", run_id, sort, limit, offset, changed_after)
    return EncodedJsonResponse(here.recent.get(key, lambda: _reported(request, here, run_id, make), run_id=run_id))


@router.get("/importance", response_model=ParamImportance)
def show_importance(run_id: str, request: Request, here: Here) -> JsonResponse:
    """How much each param decided whether a trial is among the best (PED-ANOVA), most important first, and the number
    of trials that this rests on."""
    make = partial(_reported, request, here, run_id, GroupReport.importance)
    return EncodedJsonResponse(here.recent.get(("importance", run_id), make, run_id=run_id))


@router.post("/pause", response_model=ChangedGroup, responses=refusals(507))
def pause_group(run_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Start no more trials until it is resumed. Running trials go on."""
    return _change(request, here, run_id, caller.name, lambda requests: requests.pause())


@router.post("/resume", response_model=ChangedGroup, responses=refusals(507))
def resume_group(run_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Continue a paused group. One that has ended runs what failed or was stopped again, and goes on."""
    return _change(request, here, run_id, caller.name, lambda requests: requests.resume())


@router.post("/finish", response_model=ChangedGroup, responses=refusals(507))
def finish_group(run_id: str, request: Request, here: Here, caller: Caller) -> JsonResponse:
    """Start no more trials; the group ends when those that run have ended."""
    return _change(request, here, run_id, caller.name, lambda requests: requests.finish())


@router.post("/concurrency", response_model=ChangedGroup, responses=refusals(507))
def set_concurrency(
    run_id: str,
    body: Annotated[ConcurrencyChange, json_body(ConcurrencyChange)],
    request: Request,
    here: Here,
    caller: Caller,
) -> JsonResponse:
    """Change how many trials run at a time."""
    return _change(request, here, run_id, caller.name, lambda requests: requests.set_concurrency(body.n))


@router.post("/extend", response_model=ChangedGroup, responses=refusals(507))
def extend_group(
    run_id: str, body: Annotated[TrialsChange, json_body(TrialsChange)], request: Request, here: Here, caller: Caller
) -> JsonResponse:
    """Change the number of trials in total, also of a group that has ended."""
    return _change(request, here, run_id, caller.name, lambda requests: requests.extend(body.n))


@router.post("/points", response_model=ChangedGroup, responses=refusals(507))
def add_point(
    run_id: str, body: Annotated[NewPoint, json_body(NewPoint)], request: Request, here: Here, caller: Caller
) -> JsonResponse:
    """Try a point in addition to those of the search. Params that it leaves out are drawn at random."""
    return _change(request, here, run_id, caller.name, lambda requests: requests.add(body.params))


def _change(
    request: Request, here: Context, run_id: str, by: str, ask: Callable[[GroupRequests], None]
) -> JsonResponse:
    """Leave a request for the scheduler, and wait a moment until it has taken it: `taken` of the response."""
    requests = GroupRequests(here.home, _group(here, run_id), environment_for_runs(), by)
    try:
        ask(requests)
    except CallError as fault:
        raise RequestError(400 if isinstance(fault, InvalidRequest) else 409, str(fault)) from None
    except OSError as fault:
        raise disk_refusal(fault) from None
    deadline = time.monotonic() + TAKEN_UP_S
    while not requests.are_taken() and time.monotonic() < deadline:
        here.wake()
        time.sleep(LOOK_S)
    taken = requests.are_taken()
    return EncodedJsonResponse(_reported(request, here, run_id, lambda report: {**report.summary(), "taken": taken}))
