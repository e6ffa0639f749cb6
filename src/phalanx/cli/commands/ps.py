"""phalanx ps"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.base import open_workspace

if TYPE_CHECKING:
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
@json_option
def command(query: str, sort: str, project: str | None, limit: int, offset: int, as_json: bool) -> None:
    """List runs, newest first.

    A query is a comma-separated list of conditions that must all hold: `status:running|failed`, `name:%cifar%`,
    `params.lr:<0.1`, `metric.loss:<=0.5`, `created_at:2026-01-01..2026-02-01`, `tags:a`, `status:~failed` (not
    failed).
    """
    from phalanx.store.rows import run_row

    with open_workspace(quiet=as_json) as workspace:
        runs = workspace.rows.runs(query, sort, limit=limit, offset=offset, project=project)
        count = workspace.rows.count(query, project=project)
        waits = {run.id: why for run in runs if (why := workspace.waits_for(run))}
    if as_json:
        rows = [{**run_row(run), "waits_for": waits.get(run.id)} for run in runs]
        print_json({"ok": True, "count": count, "runs": rows})
        return
    if not runs:
        click.echo("No matching runs." if query else "No runs yet: start one with `phalanx run -f polyaxonfile.yml`")
        return
    head = ["ID", "NAME", "STATUS", "AGE", "TOOK", "FRAMEWORK", "WHY"]
    print_lines(table([head, *(_row(run, waits.get(run.id)) for run in runs)]))
    if count > offset + len(runs):
        click.echo(f"{count - offset - len(runs)} more; -n {count} lists all")


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
