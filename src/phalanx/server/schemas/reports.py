"""Reports, and the charts that are pinned in a project."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from phalanx.reports.records import LONGEST_TEXT, LONGEST_TITLE
from phalanx.server.http.request_models import RequestModel, Word, one_line
from phalanx.server.schemas.base import Page, ResponseModel, Time

MOST_CHARTS = 200
MOST_METRICS = 20

MetricName = Annotated[str, Field(min_length=1, max_length=600)]
Title = Annotated[str, Field(min_length=1, max_length=LONGEST_TITLE, pattern=r"\S"), AfterValidator(one_line)]
ReportText = Annotated[str, Field(max_length=LONGEST_TEXT, description="Markdown with blocks of charts and tables")]


class PinnedChart(RequestModel):
    """A chart with one or several metrics. An empty `x` is that of the page."""

    metrics: Annotated[list[MetricName], Field(min_length=1, max_length=MOST_METRICS)]
    title: Annotated[str, Field(max_length=LONGEST_TITLE)] = ""
    x: Annotated[str, Field(max_length=610, description="`step`, `time`, `clock` or `metric.NAME`")] = ""
    log_y: bool = False


class LayoutChange(RequestModel):
    charts: Annotated[list[PinnedChart], Field(max_length=MOST_CHARTS)]


class Layout(ResponseModel):
    project: str
    charts: list[PinnedChart]


class NewReport(RequestModel):
    project: Annotated[Word, Field(min_length=1)]
    title: Title
    text: ReportText = ""


class ReportChange(RequestModel):
    title: Title
    text: ReportText


class ReportRow(ResponseModel):
    id: str
    project: str
    title: str
    created_at: Time
    created_by: str
    updated_at: Time
    updated_by: str


class ReportDetails(ReportRow):
    text: ReportText
    tag: Annotated[str, Field(description="the version, as in the ETag")]


class ReportPage(Page):
    reports: list[ReportRow]


class DeletedReport(ResponseModel):
    deleted: str
