"""Grouped runs, stars, and saved views of the table of runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from phalanx.server.http.request_models import RequestModel, Tags, one_line
from phalanx.server.schemas.base import Json, Number, Page, ResponseModel, Time


class SpreadRow(ResponseModel):
    """The values of a metric in a group of runs."""

    runs: Annotated[int, Field(description="how many runs have a value")]
    mean: Number | None
    min: Number | None
    max: Number | None


class StateCounts(ResponseModel):
    succeeded: int
    failed: int
    stopped: int
    active: int


class GroupedRunsRow(ResponseModel):
    """Runs with the same values of the fields that they are grouped by."""

    values: list[Json]
    query: Annotated[str, Field(description="selects these runs, in addition to the query of the request")]
    runs: int
    statuses: StateCounts
    first_at: Annotated[Time, Field(description="when the first of them was created")]
    last_at: Time
    metrics: dict[str, SpreadRow]


class GroupedRunsPage(Page):
    by: list[str]
    groups: list[GroupedRunsRow]


class StarList(ResponseModel):
    runs: Annotated[list[str], Field(description="the ids of the runs that the caller has starred, newest first")]


class ViewRow(ResponseModel):
    """A saved view: a query, columns, sort order and grouping under a name."""

    id: str
    name: str
    project: Annotated[str | None, Field(description="null: of all projects")]
    user: Annotated[str, Field(description="who saved it")]
    shared: Annotated[bool, Field(description="everyone who may see the project sees it")]
    q: str
    sort: str
    columns: str
    by: str
    updated_at: Time


class ViewPage(Page):
    views: list[ViewRow]


class RemovedView(ResponseModel):
    removed: str


# requests ------------------------------------------------------------------------------------------------------------


class TagChange(RequestModel):
    add: Tags | None = None
    remove: Tags | None = None


class ViewCreation(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(one_line)]
    project: Annotated[str, Field(min_length=1, max_length=600), AfterValidator(one_line)] | None = None
    shared: bool = False
    q: Annotated[str, Field(max_length=10_000)] = ""
    sort: Annotated[str, Field(max_length=600)] = ""
    columns: Annotated[str, Field(max_length=20_000)] = ""
    by: Annotated[str, Field(max_length=2_000)] = ""
