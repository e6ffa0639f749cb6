"""Groups: progress, trials, importance of params, and the bodies that change them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.http.request_models import Entries, RequestModel
from phalanx.server.schemas.base import Json, Number, Page, ResponseModel, Time
from phalanx.store.statuses import Status
from phalanx.submission.group_requests import MOST_CONCURRENT, MOST_TRIALS

TrialState = Literal["running", "reported", "failed", "invalid", "stopped"]


class Objective(ResponseModel):
    """The metric that trials are compared by."""

    name: str
    maximize: bool


class BestTrial(ResponseModel):
    trial: int
    run: str
    value: Number
    interval: Annotated[list[Number] | None, Field(description="95 % interval of the mean, with `repeat`")]
    params: dict[str, Json]


class SearchFact(ResponseModel):
    """The progress of a group, as lists show it."""

    algorithm: str
    metric: Objective | None
    trials: Annotated[dict[TrialState, int], Field(description="how many trials have each state")]
    total: int | None
    concurrency: int
    paused: Annotated[str | None, Field(description="why no new trials start; null while they do")]
    best: BestTrial | None
    repeats: int = 1
    used: Json = None


class RungBest(ResponseModel):
    trial: int
    value: Number


class RungRow(ResponseModel):
    bracket: int
    rung: int
    resource: float | None
    trials: int
    ended: int
    promoted: int
    best: RungBest | None


class GroupProgress(SearchFact):
    id: str
    name: str | None
    project: str
    status: Status
    reason: str
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    rungs: list[RungRow]
    seq: Annotated[int, Field(description="the last record of the journal that was read")]
    recent: list[Json] | None = None


class GroupDetails(GroupProgress):
    settings: Annotated[dict[str, Json], Field(description="the search as the file describes it")]


class ChangedGroup(GroupProgress):
    taken: Annotated[bool, Field(description="whether a scheduler has taken the request; otherwise it is taken later")]


class RungValue(ResponseModel):
    rung: int
    resource: float | None
    value: Number | None


class TrialAttempt(ResponseModel):
    attempt: int
    rung: int
    queued_at: Time
    started_at: Time | None
    finished_at: Time | None
    run: str


class TrialRow(ResponseModel):
    trial: int
    run: str
    runs: list[str]
    state: TrialState
    status: Status | None
    bracket: int
    rung: int
    resource: float | None
    value: Number | None
    interval: Annotated[list[Number] | None, Field(description="95 % interval of the mean, with `repeat`")]
    params: dict[str, Json]
    why: str
    decision: str
    added: bool
    values: list[RungValue]
    attempts: list[TrialAttempt]


class TrialPage(Page):
    seq: int
    trials: list[TrialRow]


class ParamShare(ResponseModel):
    name: str
    share: float


class ParamImportance(ResponseModel):
    params: list[ParamShare]
    trials: int
    best: int
    resource: float | None


# requests ------------------------------------------------------------------------------------------------------------


class ConcurrencyChange(RequestModel):
    n: Annotated[int, Field(ge=1, le=MOST_CONCURRENT, description="how many trials run at a time")]


class TrialsChange(RequestModel):
    n: Annotated[int, Field(ge=1, le=MOST_TRIALS, description="the number of trials in total")]


class NewPoint(RequestModel):
    params: Annotated[Entries, Field(min_length=1, description="params that are left out are drawn at random")]
