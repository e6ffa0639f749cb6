"""Runs: rows of lists, details, and the bodies that create and change them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.http.request_models import Entries, RequestModel, Seconds, Tags, Text, Word
from phalanx.server.schemas.base import Json, Number, Page, ResponseModel, Time
from phalanx.server.schemas.base import Seconds as ShownSeconds
from phalanx.server.schemas.groups import SearchFact
from phalanx.server.schemas.pipelines import PipelineFact
from phalanx.store.statuses import Status
from phalanx.submission.checks import LARGEST_PRIORITY


class RangeRow(ResponseModel):
    """The smallest and the largest finite value of a metric; null when there is none."""

    min: Number | None
    max: Number | None


class RunRow(ResponseModel):
    """A run as lists show it."""

    id: str
    project: str
    kind: str
    name: str | None
    description: str | None
    framework: str | None
    backend: str
    user: str
    status: Status
    reason: str
    attempt: int
    priority: int
    created_at: Time
    updated_at: Time
    started_at: Time | None
    finished_at: Time | None
    original: Annotated[str | None, Field(description="the run that this one was cloned from")]
    cloning: str | None
    group: str | None
    commit: str | None
    tags: list[str]
    params: dict[str, Json]
    summary: Annotated[dict[str, Number | None], Field(description="the last value of each metric")]
    best: dict[str, RangeRow]
    archived: Annotated[bool, Field(description="lists leave it out")]
    replica_count: Annotated[int | None, Field(description="null if unknown")]
    cpus: Annotated[float | None, Field(description="requested by all replicas together; null: none, or unknown")]
    memory_mib: float | None
    gpus: float | None


class ListedRun(RunRow):
    waits_for: Annotated[str | None, Field(description="what it waits for in the queue of its cluster")]
    search: Annotated[SearchFact | None, Field(description="the progress, of a run of kind `group`")] = None
    pipeline: Annotated[PipelineFact | None, Field(description="the progress, of a run of kind `pipeline`")] = None


class RunPage(Page):
    runs: list[ListedRun]
    archived: Annotated[int, Field(description="how many matching runs are left out because they are archived")]


class NamedCount(ResponseModel):
    name: str
    runs: Annotated[int, Field(description="how many runs have it")]


class RunColumns(ResponseModel):
    params: list[NamedCount]
    metrics: list[NamedCount]


class GroupName(ResponseModel):
    """Runs with the same `group`."""

    group: str
    project: str
    runs: int
    statuses: Annotated[dict[Status, int], Field(description="how many runs have each status")]
    created_at: Time


class GroupPage(Page):
    groups: list[GroupName]


class SummaryRow(ResponseModel):
    """A metric of all replicas. A field that an older Phalanx did not store is null."""

    last: Number
    min: Number | None
    max: Number | None
    count: int | None
    step: Annotated[int | None, Field(description="of the last point")]
    at: ShownSeconds | None


class StatusRow(ResponseModel):
    run_id: str
    number: int
    attempt: int
    status: Status
    reason: str
    at: Time


class ReplicaRow(ResponseModel):
    """A process of a run in one attempt."""

    run_id: str
    attempt: int
    role: str
    index: int
    number: Annotated[int, Field(description="the same as `index`: its earlier name")]
    rank: int
    name: str
    status: str
    reason: str
    host: str | None
    pid: int | None
    cause: str | None
    code: int | None
    signal: int | None
    started_at: Time | None
    finished_at: Time | None
    peak: dict[str, Number]
    local: int


class ArtifactRow(ResponseModel):
    run_id: str
    path: str
    type: str
    name: str
    size: int
    digest: str | None
    at: Time


class RunDetails(ListedRun):
    is_trial: Annotated[bool, Field(description="whether its `group` is the id of a search")]
    is_op: Annotated[bool, Field(description="whether its `group` is the id of a pipeline")]
    labels: dict[str, str]
    facts: dict[str, Json]
    summaries: dict[str, SummaryRow]
    statuses: list[StatusRow]
    replicas: list[ReplicaRow]
    artifacts: list[ArtifactRow]


class CreatedRun(RunRow):
    attempt: Annotated[int, Field(description="with a `session`, the attempt of that session")]


class BeatAnswer(ResponseModel):
    status: Status
    stop: Annotated[str | None, Field(description="why the run was asked to stop; null if it was not")]


class RemovedRuns(ResponseModel):
    removed: list[str]


# requests ------------------------------------------------------------------------------------------------------------


class RunChange(RequestModel):
    name: Word | None = None
    description: Text | None = None
    tags: Tags | None = None


class RunCreation(RunChange):
    id: Annotated[str, Field(max_length=100)] | None = None
    project: Word | None = None
    params: Entries | None = None
    labels: Entries | None = None
    user: Annotated[str, Field(max_length=200)] | None = None
    group: Word | None = None
    session: Annotated[str, Field(max_length=100, description="names one start of a client")] | None = None
    resume: Annotated[Literal["allow", "must", "never"], Field(description="whether to continue a run")] | None = None
    created_at: Seconds | None = None


class RunEnd(RequestModel):
    status: Literal["succeeded", "failed", "stopped"] | None = None
    reason: Annotated[str, Field(max_length=1000)] | None = None
    at: Seconds | None = None
    attempt: int | None = None


class PriorityChange(RequestModel):
    priority: Annotated[int, Field(ge=-LARGEST_PRIORITY, le=LARGEST_PRIORITY)]
