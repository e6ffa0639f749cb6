"""/api/v1/runs/{id}/metrics and …/events: metrics over time, and everything else that training tracked."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from phalanx.home.tracked_events import read_events
from phalanx.server.context import Here
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.rows import summary_rows
from phalanx.server.schemas.series import EventPage, MetricList, MetricSeries
from phalanx.spec.suggestions import did_you_mean
from phalanx.store.series.run_series import RunSeries

MOST_BUCKETS = 20_000

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["series"])


@router.get("/metrics", response_model=MetricList)
def list_metrics(
    run_id: str, here: Here, *, brief: Annotated[bool, Query(description="only the owner of each summary")] = False
) -> JsonResponse:
    """Every metric of a run and its summary, computed from the current points. The summary is that of `replica`, the
    first of `replicas`."""
    run = here.find(run_id)
    with here.charts.of(here.home.run(run.id).path) as series:
        rows: list[dict[str, Any]] = []
        summaries = {} if brief else summary_rows(series.summaries())
        for name in series.names():
            logged = series.replicas(name)
            owner = {"name": name, "replica": logged[0], "rank": series.rank(logged[0]), "replica_count": len(logged)}
            rows.append(owner if brief else {**owner, "replicas": logged, **summaries.get(name, {})})
        return JsonResponse({"metrics": rows})


@router.get("/metrics/series", response_model=MetricSeries)
def show_series(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    here: Here,
    *,
    name: Annotated[str, Query(max_length=600)],
    replica: Annotated[str | None, Query(max_length=100)] = None,
    buckets: Annotated[int, Query(ge=0, le=MOST_BUCKETS, description="0: every point")] = 1000,
    first: Annotated[int | None, Query(ge=-(2**63), lt=2**63)] = None,
    last: Annotated[int | None, Query(ge=-(2**63), lt=2**63)] = None,
    over_ranks: Annotated[bool, Query(description="mean, minimum and maximum over the replicas")] = False,
) -> JsonResponse:
    """A metric over time: in buckets with minimum, maximum, mean and last value, or every point."""
    run = here.find(run_id)
    with here.charts.of(here.home.run(run.id).path) as series:
        if name not in series.names():
            hint = did_you_mean(name, series.names()) or "GET …/metrics lists all metrics"
            raise RequestError(404, f"run {run.id} has no metric {name[:100]!r}", hint)
        if over_ranks:
            spreads = series.over_ranks(name, buckets or None, first, last)
            return JsonResponse({"name": name, "ranks": [spread._asdict() for spread in spreads]})
        if buckets == 0:
            return JsonResponse({"name": name, "series": _points(series, name, replica, first, last)})
        found = series.buckets(name, buckets, replica, first, last)
        return JsonResponse(
            {"name": name, "buckets": {one: [row._asdict() for row in rows] for one, rows in found.items()}}
        )


def _points(series: RunSeries, name: str, replica: str | None, first: int | None, last: int | None) -> list[Any]:
    low, high = -(2**63) if first is None else first, 2**63 - 1 if last is None else last
    rows = []
    for line in series.series(name, replica):
        kept = [place for place, step in enumerate(line.steps) if low <= step <= high]
        columns = {
            column: [getattr(line, column)[place] for place in kept]
            for column in ("steps", "times", "values", "attempts")
        }
        rows.append({"replica": line.replica, "rank": line.rank, **columns})
    return rows


@router.get("/events", response_model=EventPage)
def list_events(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    here: Here,
    *,
    kind: Annotated[str | None, Query(max_length=200, description="for example `text` or `table,image,alert`")] = None,
    name: Annotated[str | None, Query(max_length=600)] = None,
    replica: Annotated[str | None, Query(max_length=100)] = None,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> JsonResponse:
    """Tracked data other than metrics, in the order of writing; `count` is the total."""
    run = here.find(run_id)
    rows: list[dict[str, Any]] = []
    count = 0
    for event in read_events(here.home.run(run.id).path, kind.split(",") if kind else (), name, replica):
        if offset <= count < offset + limit:
            rows.append(event)
        count += 1
    return JsonResponse({"count": count, "events": rows})
