"""Tools that read runs: lists, details, comparisons, metrics, advice, the queue and groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from phalanx.cli.mcp.tool import Arguments, Document, RunName, RunNames, Tool, fields

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import SeriesReader, Workspace
    from phalanx.store import Run

MOST_RANKS = 8  # a metric of more replicas is summarized over the ranks, unless one replica is named
MOST_QUEUED = 20  # runs of which the reason to wait is looked up
QUERY = (
    "Comma-separated conditions that must all hold, such as `status:running|failed`, `name:%cifar%`, `params.lr:<0.1`, "
    "`metric.loss:<=0.5` (its last value), `min.loss:<0.1`, `created_at:>1h`, `tags:a`, `group:ID` (the runs of a "
    "group or pipeline), `blocked:true` (waiting for other runs), `status:~failed` (not failed), `archived:true`."
)
SORT = "Field to sort by, such as `created_at` or `metric.loss`; prefix with - for descending order."
Query = Annotated[str, Field(max_length=2_000, description=QUERY)]
Sort = Annotated[str, Field(max_length=200, description=SORT)]


@contextmanager
def opened(*, settled: bool = True) -> Iterator[Workspace]:
    from phalanx.cli.workspace.base import open_workspace

    with open_workspace(settled=settled, quiet=True) as workspace:
        yield workspace


@contextmanager
def opened_run(name: str, *, settled: bool = True) -> Iterator[tuple[Workspace, Run]]:
    from phalanx.cli.workspace.base import find_run

    with opened(settled=settled) as workspace:
        yield workspace, find_run(workspace, name)


# lists and details ---------------------------------------------------------------------------------------------------


class ListArguments(Arguments):
    query: Query = ""
    sort: Sort = "-created_at"
    project: Annotated[str | None, Field(description="Only runs of this project and of those nested in it.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of runs.")] = 20
    offset: Annotated[int, Field(ge=0, description="Number of runs to skip: the next page.")] = 0


def list_runs(asked: ListArguments) -> Document:
    from phalanx.cli.commands.ps import RunSelection

    with opened() as workspace:
        return RunSelection(asked.query, asked.sort, asked.project, asked.limit, asked.offset).as_json(workspace)


class RunArguments(Arguments):
    run: RunName


def show_run(asked: RunArguments) -> Document:
    from phalanx.cli.commands.show import details_json

    with opened_run(asked.run) as (workspace, run):
        return {**details_json(workspace, run), "waits_for": workspace.waits_for(run)}


class CompareArguments(Arguments):
    runs: Annotated[
        list[str],
        Field(default_factory=list, max_length=20, description="The runs; a group stands for its best runs."),
    ]
    query: Annotated[str | None, Field(max_length=2_000, description=f"Also the runs that match. {QUERY}")] = None
    sort: Sort = "-created_at"
    limit: Annotated[int, Field(ge=1, le=20, description="Maximum number of runs of the query, or of a group.")] = 8
    equal: Annotated[bool, Field(description="Also return values that are equal in all runs.")] = False


def compare_runs(asked: CompareArguments) -> Document:
    from phalanx.cli.commands.compare import chosen_runs, compared, comparison_json

    with opened() as workspace:
        runs = chosen_runs(workspace, asked.runs, asked.query, asked.sort, asked.limit)
        rows = compared(workspace.rows, runs)
    shown = [row for row in rows if asked.equal or row["differs"]]
    return {**comparison_json(runs, shown), "equal": len(rows) - len(shown)}


# metrics -------------------------------------------------------------------------------------------------------------


class MetricArguments(Arguments):
    run: RunName
    names: Annotated[
        list[str],
        Field(
            default_factory=list,
            max_length=20,
            description="Metrics whose values to return; `%` at the start or end is a wildcard.",
        ),
    ]
    replica: Annotated[str | None, Field(description="Only this replica, such as `worker-1`.")] = None
    over_ranks: Annotated[
        bool | None,
        Field(description="Mean, minimum and maximum over the ranks. Default: for more than 8 replicas."),
    ] = None
    steps: Annotated[str | None, Field(description="FIRST:LAST, only these steps; either end may be omitted.")] = None
    buckets: Annotated[int, Field(ge=1, le=200, description="Downsample each line to at most so many buckets.")] = 20


def read_metrics(asked: MetricArguments) -> Document:
    from phalanx.cli.commands.metrics import chosen_metrics, metric_rows, step_span, stretches

    with opened_run(asked.run) as (workspace, run):
        series = workspace.series(run)
        span = step_span(asked.steps)
        chosen = chosen_metrics(series, asked.names, asked.replica)

        def points(name: str) -> Document:
            if not asked.names:
                return {}
            over_ranks = _is_over_ranks(series, name, asked)
            found = stretches(series, name, asked.replica, span, asked.buckets, over_ranks)
            return {"buckets": {one: [bucket._asdict() for bucket in rows] for one, rows in found.items()}}

        return {"ok": True, "id": run.id, "metrics": metric_rows(series, chosen, points)}


def _is_over_ranks(series: SeriesReader, name: str, asked: MetricArguments) -> bool:
    if asked.over_ranks is not None or asked.replica is not None:
        return bool(asked.over_ranks)
    return len(series.replicas(name)) > MOST_RANKS


# advice, queue, groups -----------------------------------------------------------------------------------------------


class AdviseArguments(Arguments):
    runs: RunNames


def advise(asked: AdviseArguments) -> Document:
    from phalanx.cli.commands.advise import advice_json, advised_runs

    return {"ok": True, "runs": [advice_json(one) for one in advised_runs(asked.runs, quiet=True)]}


class NoArguments(Arguments):
    pass


def show_queue(_: NoArguments) -> Document:
    from phalanx.cli.commands.top import frame_json

    with opened() as workspace:
        found = frame_json(workspace.frame())
        rows: list[dict[str, Any]] = found["runs"]
        queued = [row["id"] for row in rows if row["queue_position"] is not None][:MOST_QUEUED]
        waits = {run_id: workspace.waits_for(workspace.rows.find(run_id)) for run_id in queued}
    return {**found, "runs": [{**row, "waits_for": waits.get(row["id"])} for row in rows]}


class GroupArguments(Arguments):
    group: Annotated[str, Field(min_length=1, max_length=500, description="The group: an id or a name.")]
    sort: Annotated[
        Literal["value", "trial"],
        Field(description="`value`: the best trials first; `trial`: in order of their start."),
    ] = "value"
    limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of trials.")] = 10


def show_group(asked: GroupArguments) -> Document:
    from phalanx.submission.group_requests import require_group

    with opened_run(asked.group) as (workspace, run):
        require_group(run)
        view = workspace.group(run)
        return {"ok": True, "group": dict(view.summary), "trials": view.rows(asked.sort, asked.limit)}


TOOLS = (
    Tool(
        "list_runs",
        "List runs",
        "List experiments, jobs, groups and pipelines, newest first, with status, params, the last values of metrics, "
        "and what a queued run waits for (`waits_for`).",
        ListArguments,
        list_runs,
        fields(
            ok="boolean: always true",
            count="integer: how many runs match, on all pages",
            runs="array: the runs",
            archived="integer: how many matching runs are left out because they are archived",
        ),
    ),
    Tool(
        "show_run",
        "Show a run",
        "Show one run: status and reason, params, replicas with rank, host, end and peak use, status history, and in "
        "`facts.failure` the replica that failed first. Of a pipeline, also its ops and why one waits.",
        RunArguments,
        show_run,
        fields(
            ok="boolean: false if the run failed",
            id="string: the id of the run",
            status="string: its status",
            reason="string: why it has this status",
            waits_for="string|null: what it waits for",
            params="object: its params",
            summary="object: the last value of each metric",
            replicas="array: its replicas, of the newest attempt",
            statuses="array: its status history",
            facts="object: what is known beside: the job, the progress, the failure, the datasets",
            ops_or_not="array: the ops of a pipeline",
        ),
    ),
    Tool(
        "compare_runs",
        "Compare runs",
        "Compare params and metrics of two or more runs side by side: which differ, and how.",
        CompareArguments,
        compare_runs,
        fields(
            ok="boolean: always true",
            runs="array: the runs, in the order of the values",
            rows="array: kind (param, metric, min, max), name, values in the order of the runs, differs",
            equal="integer: how many rows were left out because they are equal in all runs",
        ),
    ),
    Tool(
        "read_metrics",
        "Read metrics",
        "Read the metrics of a run. Without `names`: a summary of each metric (last, min, max, number of points). With "
        "`names`: also its values over the steps, downsampled to buckets with count, min, max and mean, per replica.",
        MetricArguments,
        read_metrics,
        fields(
            ok="boolean: always true",
            id="string: the id of the run",
            metrics="array: name, replicas, summary, and buckets by replica (`all` for over_ranks)",
        ),
    ),
    Tool(
        "advise",
        "Advise on resources",
        "Compare the cores, memory, GPUs and time that runs requested with what they used, and recommend what to "
        "request next time: `environment` is the section of the file to write. `caveats` say how far to trust it.",
        AdviseArguments,
        advise,
        fields(ok="boolean: always true", runs="array: the runs, each with its advice"),
    ),
    Tool(
        "show_queue",
        "Show the queue",
        "Show what is running and queued now: the position in the queue, why each run waits (`waits_for`), its "
        "replicas with their CPU and memory use, and what the machine has free.",
        NoArguments,
        show_queue,
        fields(
            ok="boolean: always true",
            at="string: when",
            machine="object: what the machine has",
            asked="object: what running runs requested of it",
            free="object: the rest",
            runs="array: active runs",
        ),
    ),
    Tool(
        "show_group",
        "Show a group",
        "Show a group (a search over params): its progress and rungs, and its trials with params and values, the best "
        "first. `list_runs` with `group:ID` lists its runs; `show_run` shows a pipeline.",
        GroupArguments,
        show_group,
        fields(
            ok="boolean: always true",
            group="object: status, algorithm, metric, counts of trials by state, best",
            trials="array: trial, run, state, params, value, and why it ended",
        ),
    ),
)
