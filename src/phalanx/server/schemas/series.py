"""Metrics over time, charts and tracked events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from phalanx.server.schemas.base import Json, Number, Page, ResponseModel, Seconds


class MetricRow(ResponseModel):
    """A metric. The summary is that of `replica`; with `brief` it is left out, and so are `replicas`."""

    name: str
    replica: str
    rank: int | None
    replica_count: int
    replicas: list[str] | None = None
    last: Number | None = None
    min: Number | None = None
    max: Number | None = None
    count: int | None = None
    step: int | None = None
    at: Seconds | None = None


class MetricList(ResponseModel):
    metrics: list[MetricRow]


class BucketRow(ResponseModel):
    """Consecutive points of one replica. Minimum, maximum and mean are over the finite values, null without any."""

    first_step: int
    last_step: int
    first_time: Seconds
    last_time: Seconds
    count: int
    min: Number | None
    max: Number | None
    mean: Number | None
    last: Number
    odd: Annotated[int, Field(description="number of NaN or infinite values")]


class StepSpread(ResponseModel):
    """What the replicas logged at a step, or between two."""

    first_step: int
    last_step: int
    first_time: Seconds
    last_time: Seconds
    count: int
    min: Number | None
    max: Number | None
    mean: Number | None
    odd: Annotated[int, Field(description="number of NaN or infinite values")]
    ranks: Annotated[int, Field(description="number of replicas that logged here")]


class PointColumns(ResponseModel):
    """Every point of one replica, as columns."""

    replica: str
    rank: int | None
    steps: list[int]
    times: list[Seconds]
    values: list[Number]
    attempts: list[int]


class MetricSeries(ResponseModel):
    """One of `ranks` (with `over_ranks`), `series` (with `buckets=0`) and `buckets` (by replica)."""

    name: str
    ranks: list[StepSpread] | None = None
    series: list[PointColumns] | None = None
    buckets: dict[str, list[BucketRow]] | None = None


Values = list[Number | None]


class ChartLine(ResponseModel):
    """A line of a chart, as columns: one entry per bucket."""

    replica: Annotated[str | None, Field(description="null: the aggregate of all replicas")]
    rank: int | None
    of: Annotated[int, Field(description="of an aggregate: the number of replicas")] | None = None
    steps: list[int]
    times: list[Seconds]
    low: Values
    high: Values
    mean: Values
    last: Values
    odd: Annotated[list[int], Field(description="NaN or infinite values; absent if there are none")] | None = None
    ranks: Annotated[list[int], Field(description="replicas of an aggregate at each step; absent if all")] | None = None


class LostLine(ResponseModel):
    """Points that a later attempt logged again."""

    replica: str
    attempt: int
    steps: list[int]
    times: list[Seconds]
    last: Values


class AttemptStart(ResponseModel):
    attempt: int
    first_step: int


class LaggingReplica(ResponseModel):
    replica: str
    rank: int | None
    step: int


class LaggingReplicas(ResponseModel):
    """The replicas that a mean lacks at its end, the slowest first."""

    count: int
    replicas: list[LaggingReplica]


class RunChart(ResponseModel):
    name: str
    mode: Literal["ranks", "mean"]
    of: Annotated[int, Field(description="the number of replicas that logged it")]
    attempts: list[AttemptStart]
    behind: LaggingReplicas | None = None
    lines: list[ChartLine]
    overwritten: list[LostLine]


class RunCharts(ResponseModel):
    charts: list[RunChart]


class ComparedLine(ChartLine):
    run: str


class ComparedChart(ResponseModel):
    name: str
    runs: list[ComparedLine]


class ComparedCharts(ResponseModel):
    charts: list[ComparedChart]


class TrackedEvent(ResponseModel):
    """A tracked text, image, table and so on. The other fields depend on its kind."""

    model_config = ConfigDict(extra="allow")

    kind: str
    at: Seconds
    replica: str
    attempt: int
    name: Json = None
    step: Json = None


class EventPage(Page):
    events: list[TrackedEvent]
