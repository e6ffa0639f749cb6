"""phalanx ps"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.live_screen import REDRAW_S, is_terminal, watch
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.base import open_workspace

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.store import Run


@click.command("ps")
@click.option("-q", "--query", default="", metavar="QUERY", help='Filter, such as "status:running, metric.loss:<0.1".')
@click.option(
    "-s",
    "--sort",
    default="-created_at",
    show_default=True,
    metavar="FIELD",
    help="Field to sort by. Prefix with - for descending order.",
)
@click.option("--project", help="Only runs of this project.")
@click.option(
    "-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Maximum number of runs."
)
@click.option("--offset", default=0, type=click.IntRange(0), help="Number of runs to skip.")
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Redraw the list until q or Ctrl-C is pressed.")
@json_option
def command(
    query: str, sort: str, project: str | None, limit: int, offset: int, is_watched: bool, as_json: bool
) -> None:
    """List runs, newest first.

    A query is a comma-separated list of conditions that must all hold: `status:running|failed`, `name:%cifar%`,
    `params.lr:<0.1`, `metric.loss:<=0.5`, `created_at:2026-01-01..2026-02-01`, `tags:a`, `parent:ID` (the
    children of a run), `status:~failed` (not failed).
    """
    from phalanx.store.rows import run_row

    def found(workspace: Workspace) -> tuple[list[Run], int, dict[str, str]]:
        runs = workspace.rows.runs(query, sort, limit=limit, offset=offset, project=project)
        count = workspace.rows.count(query, project=project)
        return runs, count, {run.id: why for run in runs if (why := workspace.waits_for(run))}

    def lines(workspace: Workspace) -> list[str]:
        runs, count, waits = found(workspace)
        if not runs:
            return ["No matching runs." if query else "No runs yet: start one with `phalanx run -f polyaxonfile.yml`"]
        head = ["ID", "NAME", "STATUS", "AGE", "TOOK", "FRAMEWORK", "WHY"]
        more = count - offset - len(runs)
        rows = table([head, *(_row(run, waits.get(run.id)) for run in runs)])
        return [*rows, *([f"{more} more; -n {count} lists all"] if more > 0 else [])]

    is_live = is_watched and not as_json and is_terminal()
    with open_workspace(settled=not is_live, quiet=as_json) as workspace:
        if is_live:
            with workspace.attended() as turn:
                watch(lambda: lines(workspace), turn, REDRAW_S)
        elif as_json:
            runs, count, waits = found(workspace)
            rows = [{**run_row(run), "waits_for": waits.get(run.id)} for run in runs]
            print_json({"ok": True, "count": count, "runs": rows})
        else:
            print_lines(lines(workspace))


def _row(run: Run, waits: str | None) -> list[str]:
    took = (run.finished_at or datetime.now(UTC)) - run.started_at if run.started_at else None
    return [
        run.id,
        printable(run.name or "-"),
        run.status,
        span(datetime.now(UTC) - run.created_at),
        span(took) if took is not None else "-",
        printable(run.framework or "-"),
        printable(waits or run.reason)[:70],
    ]


def span(time: timedelta) -> str:
    """A duration in its largest unit, rounded."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    return f"{seconds // 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds // 86400:.0f} days"
