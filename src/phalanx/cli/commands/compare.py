"""phalanx compare"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import RunQueries, Workspace
    from phalanx.store import Run

WIDEST = 24  # characters of a value in the table


@click.command("compare")
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option("-q", "--query", metavar="QUERY", help="Compare the runs that match, as in `phalanx ps -q`.")
@click.option("-s", "--sort", default="-created_at", show_default=True, help="Sort order of the runs of --query.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=8, show_default=True, help="Maximum number of runs of --query."
)
@click.option("--all", "everything", is_flag=True, help="Also show values that are equal in all runs.")
@json_option
def command(runs: tuple[str, ...], query: str | None, sort: str, limit: int, everything: bool, as_json: bool) -> None:
    """Compare params and metrics of runs side by side; those that differ come first.

    RUN is an id, a name (the newest run of that name), or the first characters of an id. A group stands for its best
    runs.
    """
    with open_workspace(quiet=as_json) as workspace:
        chosen = chosen_runs(workspace, runs, query, sort, limit)
        rows = compared(workspace.rows, chosen)
    if as_json:
        print_json(comparison_json(chosen, rows))
        return
    _print(chosen, rows, everything=everything)


def chosen_runs(workspace: Workspace, names: Sequence[str], query: str | None, sort: str, limit: int) -> list[Run]:
    """The named runs, the best runs of named groups, and those of the query. Raises CallError for fewer than two."""
    from phalanx.home.stars import OWNER
    from phalanx.store.kinds import WHOLES

    chosen = []
    for found in [find_run(workspace, name) for name in names]:
        chosen += _trials(workspace.rows, found, limit) if found.kind in WHOLES else [found]
    if query is not None:
        chosen += workspace.rows.runs(query, sort, limit, unarchived=True, user=OWNER)
    chosen = list({run.id: run for run in chosen}.values())
    if len(chosen) < 2:
        raise CallError("name at least two runs, or use a query: `phalanx compare -q 'tags:nightly'`")
    return chosen


def comparison_json(runs: list[Run], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ok": True, "runs": [_about(run) for run in runs], "rows": rows}


def _trials(rows: RunQueries, group: Run, limit: int) -> list[Run]:
    """The best runs of a group by its metric; without a metric the first ones."""
    metric = (rows.facts(group.id).get("search") or {}).get("metric")
    sort = f"{'-' if metric['maximize'] else ''}metric.{metric['name']}" if metric else "created_at"
    return rows.runs(f"group:{group.id}", sort, limit)


def _about(run: Run) -> dict[str, Any]:
    return {"id": run.id, "name": run.name, "project": run.project, "status": run.status, "tags": list(run.tags)}


def compared(rows_of: RunQueries, runs: list[Run]) -> list[dict[str, Any]]:
    """One row for each param and metric: its values in the order of the runs, None for a run without it. Rows that
    differ come first. Metrics also have rows for minimum and maximum."""
    from phalanx.insight.comparison import compare

    summaries = {run.id: rows_of.summaries(run.id) for run in runs}
    rows = []
    for kind, columns in (
        ("param", [run.params for run in runs]),
        ("metric", [{name: row.last for name, row in summaries[run.id].items()} for run in runs]),
        ("min", [{name: row.min for name, row in summaries[run.id].items()} for run in runs]),
        ("max", [{name: row.max for name, row in summaries[run.id].items()} for run in runs]),
    ):
        rows += [{"kind": kind, **row} for row in compare(columns)]
    order = {"param": 0, "metric": 1, "min": 2, "max": 3}
    return sorted(rows, key=lambda row: (not row["differs"], order[str(row["kind"])]))


def _print(runs: list[Run], rows: list[dict[str, Any]], *, everything: bool) -> None:
    lines = [["", *(run.id for run in runs)]]
    lines += [["name", *(_cell(run.name) for run in runs)], ["status", *(run.status for run in runs)]]
    seconds = [
        (run.finished_at - run.started_at).total_seconds() if run.finished_at and run.started_at else None
        for run in runs
    ]
    lines.append(["took", *("-" if took is None else f"{took:.0f} s" for took in seconds)])
    hidden = 0
    for row in rows:
        if not row["differs"] and not everything:
            hidden += row["kind"] in ("param", "metric")
            continue
        if row["kind"] in ("min", "max") and not everything:
            continue
        label = row["name"] if row["kind"] in ("param", "metric") else f"{row['name']} ({row['kind']})"
        lines.append(
            [f"{row['kind'] if row['kind'] == 'param' else 'metric'} {printable(label)}", *map(_cell, row["values"])]
        )
    print_lines(table(lines))
    if hidden:
        click.echo(f"\n{hidden} params and metrics are equal in all runs; --all shows them")


def _cell(value: Any) -> str:
    text = "-" if value is None else f"{value:.6g}" if isinstance(value, float) else printable(str(value))
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
