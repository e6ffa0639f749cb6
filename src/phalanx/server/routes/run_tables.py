"""/api/v1/runs/grouped and /api/v1/runs.csv: the table of runs, folded by values, or as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from phalanx.server.context import Caller, Context, Here, visible_projects
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.responses import EncodedJsonResponse, JsonResponse, encoded
from phalanx.server.schemas.run_tables import GroupedRunsPage
from phalanx.store import Run
from phalanx.store.grouped_runs import GroupedRuns
from phalanx.store.run_csv import csv_lines
from phalanx.store.run_fields import check_column

BATCH = 200  # runs that are read and sent at once
FIRST_COLUMNS = ("id", "name", "status")
USUAL_COLUMNS = ("project", "user", "created_at", "started_at", "finished_at", "duration_s", "tags")
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}

router = APIRouter(prefix="/api/v1", tags=["runs"])

Q = Annotated[str, Query(max_length=10_000, description="for example `status:running, metric.loss:<0.1`")]
Project = Annotated[str | None, Query(max_length=600)]
Columns = Annotated[
    str | None, Query(max_length=20_000, description="for example `params.lr,metric.loss`; `%2C` is a comma in a name")
]


def split_columns(text: str) -> list[str]:
    return [name.replace("%2C", ",").replace("%25", "%") for name in text.split(",") if name]


@router.get("/runs/grouped", response_model=GroupedRunsPage)
def group_runs(  # noqa: PLR0913 - each is a parameter of the query
    here: Here,
    caller: Caller,
    *,
    by: Annotated[str, Query(max_length=2_000, description="for example `params.lr,params.optimizer`, or `tags`")],
    q: Q = "",
    columns: Columns = None,
    sort: Annotated[str, Query(max_length=600, description="`value`, `count`, `created_at` or a column")] = "value",
    limit: Limit = 100,
    offset: Offset = 0,
    project: Project = None,
    archived: Annotated[bool, Query(description="also archived runs")] = False,
) -> JsonResponse:
    """The runs that match a query, grouped by the values of up to three fields, with the mean, minimum and maximum of
    metric columns in each group. Trials of groups count as runs; the groups themselves do not."""
    shown = visible_projects(caller, project)
    fields, wanted = split_columns(by), split_columns(columns or "")

    def make() -> bytes:
        found, count = here.store.grouped(
            fields, wanted, q, sort, limit, offset, shown, unarchived=not archived, user=caller.name
        )
        return encoded({"count": count, "by": fields, "groups": [_group_row(group) for group in found]})

    whose = caller.name if "starred" in q else ""
    key = ("grouped", by, q, columns, sort, limit, offset, shown, archived)
    return EncodedJsonResponse(here.recent.get(key, make, whose=whose))


def _group_row(group: GroupedRuns) -> dict[str, Any]:
    metrics = {field: spread._asdict() for field, spread in group.metrics.items()}
    times = {"first_at": group.first_at.isoformat(), "last_at": group.last_at.isoformat()}
    return {**group._asdict(), "values": list(group.values), "metrics": metrics, **times}


@router.get("/runs.csv", response_class=StreamingResponse, responses=CSV)
def export_runs(  # noqa: PLR0913 - each is a parameter of the query
    here: Here,
    caller: Caller,
    *,
    q: Q = "",
    sort: Annotated[str, Query(max_length=600)] = "-created_at",
    project: Project = None,
    columns: Columns = None,
    archived: Annotated[bool, Query(description="also archived runs")] = False,
    fold: Annotated[bool, Query(description="without the trials of groups")] = False,
) -> StreamingResponse:
    """All runs that match a query, as CSV: id, name, status and the columns. Texts that a spreadsheet would execute as
    a formula begin with an apostrophe."""
    wanted = list(USUAL_COLUMNS) if columns is None else split_columns(columns)
    shown = list(dict.fromkeys([*FIRST_COLUMNS, *wanted]))
    for column in shown:
        check_column(column)
    keys = here.store.keys(
        q,
        sort,
        project=visible_projects(caller, project),
        folded=fold,
        unarchived=not archived,
        user=caller.name,
    )
    headers = {"Content-Disposition": 'attachment; filename="runs.csv"', "Cache-Control": "no-store"}
    headers["X-Content-Type-Options"] = "nosniff"
    return StreamingResponse(_pieces(here, shown, keys), media_type="text/csv; charset=utf-8", headers=headers)


def _pieces(here: Context, columns: list[str], keys: list[int]) -> Iterator[str]:
    """The parts of the file, each of some runs. Every part may be made by another thread, which has its own store."""

    def lines(runs: list[Run]) -> list[str]:
        return list(csv_lines(columns, runs))

    yield lines([])[0]
    for start in range(0, len(keys), BATCH):
        yield "".join(lines(here.store.with_keys(keys[start : start + BATCH]))[1:])
