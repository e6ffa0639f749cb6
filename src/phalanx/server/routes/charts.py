"""/api/v1/runs/{id}/chart and /api/v1/charts: many charts at once, of one run or of many, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from enum import StrEnum
from hashlib import sha256
from operator import itemgetter
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from phalanx import __version__
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.chart_cache import CachedText
from phalanx.server.chart_encoding import joined, line_text, lost_text
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.responses import EncodedJsonResponse, RequestError
from phalanx.server.schemas.series import ComparedCharts, RunCharts
from phalanx.store import Run
from phalanx.store.series.run_series import RunSeries

MOST_NAMES = 50
MOST_SHARED = 20  # metrics of a comparison
MOST_RUNS = 100
MOST_LINES = 64
MOST_BUCKETS = 5_000
MOST_BEHIND = 20  # replicas of which a chart says that they are behind
ALL_BUCKETS = 60_000  # points of all lines of a response
FEWEST = 40

Step = Annotated[int | None, Query(ge=-(2**63), lt=2**63)]
Name = Annotated[str, Query(max_length=600)]

UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Unchanged since the `ETag` of `If-None-Match`."}}

router = APIRouter(prefix="/api/v1", tags=["series"])


class Mode(StrEnum):
    RANKS = "ranks"
    MEAN = "mean"


class ChartView(NamedTuple):
    """How much of a metric to draw."""

    mode: Mode
    buckets: int
    first: int | None
    last: int | None


class ColumnsResponse(EncodedJsonResponse):
    """A cacheable response that the browser revalidates."""

    def __init__(self, content: bytes, tag: str) -> None:
        super().__init__(content)
        self.headers.update({"Cache-Control": "private, no-cache", "ETag": tag, "Vary": "Authorization, Cookie"})


@router.get("/runs/{run_id}/chart", response_model=RunCharts, responses=UNCHANGED)
def show_chart(  # noqa: PLR0913 - each is a parameter of the query
    run_id: str,
    request: Request,
    here: Here,
    *,
    name: Annotated[list[Name], Query(max_length=MOST_NAMES)],
    replica: Annotated[list[Name] | None, Query(max_length=MOST_LINES)] = None,
    mode: Mode = Mode.RANKS,
    buckets: Annotated[int, Query(ge=1, le=MOST_BUCKETS)] = 400,
    first: Step = None,
    last: Step = None,
    overwritten: Annotated[bool, Query(description="include points that a later attempt logged again")] = False,
    most: Annotated[int, Query(ge=1, le=MOST_LINES, description="maximum number of lines of a chart")] = 16,
) -> Response:
    """Metrics of a run over time: for each replica the minimum, maximum, mean and last value of up to `buckets`
    buckets; or the mean over all replicas, with minimum and maximum."""
    is_done = here.is_done(run_id)
    names = list(dict.fromkeys(name))

    def draw(found: CachedText) -> str:
        chosen = {one: _lines_of(found.series, one, replica, most, mode) for one in names}
        view = ChartView(mode, _fitting(buckets, sum(map(len, chosen.values()))), first, last)
        charts = [_chart(here, run_id, found, one, chosen[one], view, overwritten=overwritten) for one in names]
        return f'{{"charts":[{",".join(charts)}]}}'

    if is_done:
        with _series(here, run_id, is_done=True) as found:
            tag = _tag(request, [found.stamp])
            return _unchanged(tag) if _is_known(request, tag) else ColumnsResponse(draw(found).encode(), tag)

    def draw_anew() -> bytes:
        with _series(here, run_id, is_done=False) as found:
            return draw(found).encode()

    content = here.recent.get(("chart", request.url.path, request.url.query), draw_anew, run_id=run_id)
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    return _unchanged(tag) if _is_known(request, tag) else ColumnsResponse(content, tag)


def _series(here: Context, run_id: str, *, is_done: bool) -> AbstractContextManager[CachedText]:
    folder = here.home.run(run_id).path
    return here.charts.stamped(folder, here.charts.patience_s(folder, is_done=is_done))


def _lines_of(
    series: RunSeries, name: str, wanted: Sequence[str] | None, most: int, mode: Mode
) -> Sequence[str | None]:
    """The replicas that get a line; None means the aggregate of all."""
    logged = series.replicas(name)
    if mode is Mode.MEAN:
        return [None] if logged else []
    return [one for one in logged if not wanted or one in wanted][:most]


def _chart(  # noqa: PLR0913, PLR0917 - the parts of a chart
    here: Context,
    run_id: str,
    found: CachedText,
    name: str,
    chosen: Sequence[str | None],
    view: ChartView,
    *,
    overwritten: bool,
) -> str:
    series = found.series
    logged = series.replicas(name)
    lines = [_line(here, run_id, found, name, one, view, {}) for one in chosen]
    about = {
        "name": name,
        "mode": view.mode.value,
        "of": len(logged),
        **(_behind(series, name) if view.mode is Mode.MEAN else {}),
        "attempts": [
            {"attempt": number, "first_step": step}
            for number, step in (series.first_steps(name, logged[0]) if logged else ())
        ],
    }
    lost = [_lost(series, name, one, view) for one in chosen if one is not None] if overwritten else []
    return joined(about, [f'"lines":[{",".join(lines)}]', f'"overwritten":[{",".join(filter(None, lost))}]'])


def _behind(series: RunSeries, name: str) -> dict[str, Any]:
    """Which replicas a mean lacks at its end, the slowest first."""
    found = sorted(series.behind(name), key=itemgetter(1))
    rows = [{"replica": one, "rank": series.rank(one), "step": step} for one, step in found[:MOST_BEHIND]]
    return {"behind": {"count": len(found), "replicas": rows}}


def _line(  # noqa: PLR0913, PLR0917 - the parts of a line
    here: Context,
    run_id: str,
    found: CachedText,
    name: str,
    replica: str | None,
    view: ChartView,
    about: dict[str, str],
) -> str:
    """Cached until something is logged."""
    series = found.series

    def make() -> str:
        if replica is None:
            rows = series.over_ranks(name, view.buckets, view.first, view.last)
            of = len(series.replicas(name))
            return line_text({**about, "replica": None, "rank": None, "of": of}, rows, of)
        drawn = series.buckets(name, view.buckets, replica, view.first, view.last)[replica]
        return line_text({**about, "replica": replica, "rank": series.rank(replica)}, drawn)

    return here.charts.texts.get((run_id, found.stamp, name, replica, view, *about), make)


def _lost(series: RunSeries, name: str, replica: str, view: ChartView) -> str:
    parts = series.overwritten_buckets(name, replica, view.buckets, view.first, view.last)
    return ",".join(lost_text({"replica": replica, "attempt": number}, rows) for number, rows in parts)


@router.get("/charts", response_model=ComparedCharts, responses=UNCHANGED)
def show_charts(  # noqa: PLR0913 - each is a parameter of the query
    request: Request,
    here: Here,
    caller: Caller,
    *,
    run: Annotated[list[Name], Query(max_length=MOST_RUNS)],
    name: Annotated[list[Name], Query(max_length=MOST_SHARED)],
    mode: Mode = Mode.RANKS,
    buckets: Annotated[int, Query(ge=1, le=MOST_BUCKETS)] = 300,
    first: Step = None,
    last: Step = None,
) -> Response:
    """Metrics of many runs over time: for each run its first replica, or the mean over all. Runs that the caller may
    not see, or that lack the metric, are omitted."""
    runs, names = visible_runs(here, caller, run), list(dict.fromkeys(name))
    view = ChartView(mode, _fitting(buckets, len(runs) * len(names)), first, last)
    drawn: dict[str, list[str]] = {one: [] for one in names}
    stamps = []
    for one in runs:
        with _series(here, one.id, is_done=one.is_done) as found:
            stamps.append(found.stamp)
            for metric in names:
                logged = found.series.replicas(metric)
                if logged:
                    replica = None if mode is Mode.MEAN else logged[0]
                    drawn[metric].append(_line(here, one.id, found, metric, replica, view, {"run": one.id}))
    tag = _tag(request, [f"{one.id}:{stamp}" for one, stamp in zip(runs, stamps, strict=True)])
    if _is_known(request, tag):
        return _unchanged(tag)
    charts = [joined({"name": metric}, [f'"runs":[{",".join(lines)}]']) for metric, lines in drawn.items()]
    return ColumnsResponse(f'{{"charts":[{",".join(charts)}]}}'.encode(), tag)


def visible_runs(here: Context, caller: Identity, ids: Sequence[str]) -> list[Run]:
    """The runs that exist and that the caller may see, without duplicates."""
    found = []
    for one in dict.fromkeys(ids):
        with suppress(RequestError):
            found.append(here.find(one))
    return [run for run in found if caller.has(Role.VIEWER, run.project)]


def _fitting(buckets: int, lines: int) -> int:
    """A number of buckets that keeps the response small for any request."""
    return max(1, min(buckets, max(FEWEST, ALL_BUCKETS // max(1, lines))))


def _tag(request: Request, stamps: Sequence[object]) -> str:
    """The ETag: the same request on unchanged data has the same one."""
    question = f"{__version__} {request.url.path}?{request.url.query} {stamps}"
    return f'"{sha256(question.encode()).hexdigest()[:32]}"'


def _is_known(request: Request, tag: str) -> bool:
    return tag in request.headers.get("if-none-match", "")


def _unchanged(tag: str) -> Response:
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
