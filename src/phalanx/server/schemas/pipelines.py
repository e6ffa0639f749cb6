"""Pipelines: their ops and the edges between them, and the ticks of schedules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.schemas.base import Json, ResponseModel, Time
from phalanx.store.statuses import Status

OpStatus = Status | Literal["waiting"]


class OpRow(ResponseModel):
    name: str
    kind: Annotated[str | None, Field(description="experiment, job or group; null if its template is not in the file")]
    status: Annotated[OpStatus, Field(description="that of its run; `waiting` before it is decided whether it runs")]
    run_id: Annotated[str | None, Field(description="its newest run or group; null before it has one")]
    runs: Annotated[list[str], Field(description="all its runs: a retry is a new one")]
    retries: int
    max_retries: int
    trigger: str
    dependencies: Annotated[list[str], Field(description="the ops that its trigger is about")]
    reason: Annotated[str, Field(description="why it has this status; of an op that waits, for whom")]
    started_at: Time | None
    ended_at: Time | None
    params: dict[str, Json]
    outputs: dict[str, Json]
    missing: Annotated[dict[str, str], Field(description="declared outputs without a value, and why")]
    is_reused: Annotated[bool, Field(description="whether it has the result of an earlier run")]


class OpEdge(ResponseModel):
    """`target` waits for `source`."""

    source: str
    target: str
    kind: Literal["dependency", "output", "condition"]


class TickRow(ResponseModel):
    at: Time
    run_id: Annotated[str, Field(description="the pipeline that the tick started")]
    status: Status | None


class PipelineFact(ResponseModel):
    """The progress of a pipeline, as lists show it."""

    ops: Annotated[dict[str, int], Field(description="how many ops have each status")]
    total: int
    concurrency: int | None


class PipelineDetails(ResponseModel):
    id: str
    name: str | None
    project: str
    kind: Literal["pipeline", "schedule"]
    status: Status
    reason: str
    user: str
    backend: str
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    waits_for: str | None
    concurrency: int | None
    timeout_s: float | None
    execute_at: str | None
    schedule: Annotated[dict[str, Json] | None, Field(description="as in the file; null without one")]
    scheduled_by: Annotated[str | None, Field(description="the schedule that started it")]
    next_tick: Time | None
    ticks: Annotated[list[TickRow], Field(description="the last ticks of a schedule, newest first")]
    counts: Annotated[dict[OpStatus, int], Field(description="how many ops have each status")]
    ops: list[OpRow]
    edges: list[OpEdge]
    seq: Annotated[int, Field(description="the last record of the journal that was read")]
