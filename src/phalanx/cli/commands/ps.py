"""phalanx ps"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.workspace.base import open_workspace
from phalanx.errors import CallError, SystemFault

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.home.outbox import UnsentRun
    from phalanx.store import Run


DEFAULT_LIMIT = 20
CSV_COLUMNS = ("id", "name", "status", "project", "user", "created_at", "duration_s", "framework", "tags", "reason")
HEAD = ("ID", "NAME", "STATUS", "AGE", "TOOK", "FRAMEWORK")


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
@click.option(
    "-c",
    "--column",
    "columns",
    multiple=True,
    metavar="FIELD",
    help="Also show a field, such as gpus, params.lr, metric.loss (its last value), min.loss or best.loss. Repeatable.",
)
@click.option("--project", help="Only runs of this project, and of those nested in it.")
@click.option(
    "-n",
    "--limit",
    default=None,
    type=click.IntRange(1, 10_000),
    help="Maximum number of runs.  [default: 20; with --csv: all]",
)
@click.option("--offset", default=0, type=click.IntRange(0), help="Number of runs to skip.")
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Redraw the list until q or Ctrl-C is pressed.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all matching runs as CSV.")
@json_option
def command(
    query: str,
    sort: str,
    columns: tuple[str, ...],
    project: str | None,
    limit: int | None,
    offset: int,
    is_watched: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """List runs, newest first. Archived runs are left out.

    A query is a comma-separated list of conditions that must all hold: `status:running|failed`, `name:%cifar%`,
    `params.lr:<0.1`, `metric.loss:<=0.5` (its last value), `min.loss:<0.1` (its smallest one; `max.` likewise),
    `created_at:>1h` (in the last hour; also `30m`, `7d`, `2w`), `created_at:2026-01-01..2026-02-01`, `gpus:>2` (of all
    replicas; also `cpus`, `memory:>16g`, `replicas`, `nodes`), `host:node7`, `tags:a`, `starred:true`, `archived:true`,
    `parent:ID` (the children of a run), `blocked:true` (waiting for other runs), `status:~failed` (not
    failed), `params.lr:nil` (without it).
    """
    from phalanx.store.project_scope import enclosing_projects

    selection = RunSelection(query, sort, project, limit or (None if as_csv else DEFAULT_LIMIT), offset)
    # A query is for the runs of the home or server: nothing is known of these.
    known = [] if query or offset else unsent_here()
    unsent = [run for run in known if project is None or project in enclosing_projects(run.project)]

    def lines(workspace: Workspace) -> list[str]:
        runs, count, waits = selection.read(workspace)
        hidden = _archived_line(selection.count_archived(workspace))
        if not runs and not unsent:
            no_runs = "No runs yet: start one with `phalanx run -f polyaxonfile.yml`"
            return ["No matching runs." if query or hidden else no_runs, *hidden]
        head = [*HEAD, *map(printable, columns), "WHY"]
        more = count - offset - len(runs)
        waiting = [_unsent_row(run, columns) for run in unsent]
        rows = table([head, *waiting, *(_row(run, columns, waits.get(run.id)) for run in runs)])
        return [*rows, *([f"{more} more; -n {count} lists all"] if more > 0 else []), *hidden]

    if as_csv and (as_json or is_watched):
        raise CallError("--csv cannot be combined with --json or --watch")
    if columns:
        from phalanx.store.run_fields import check_column

        for field in columns:
            check_column(field)
    is_live = is_watched and not as_json and sys.stdout.isatty() and sys.stdin.isatty()
    with open_workspace(settled=not is_live, quiet=as_json) as workspace, _listed_anyway(unsent, as_json=as_json):
        if is_live:
            from phalanx.cli.render.live_screen import REDRAW_S, watch

            with workspace.attended() as turn:
                watch(lambda: lines(workspace), turn, REDRAW_S)
        elif as_csv:
            from phalanx.store.run_csv import csv_lines

            for line in csv_lines(list(dict.fromkeys([*CSV_COLUMNS, *columns])), selection.read(workspace)[0]):
                click.echo(line, nl=False)
        elif as_json:
            print_json({**selection.as_json(workspace), "unsent": [_unsent_json(run) for run in unsent]})
        else:
            print_lines(lines(workspace))


class RunSelection(NamedTuple):
    """Which runs to list. Archived ones are only counted."""

    query: str
    sort: str
    project: str | None
    limit: int | None
    offset: int

    def read(self, workspace: Workspace) -> tuple[list[Run], int, dict[str, str]]:
        """The runs, how many match in all, and what each of them waits for, by id."""
        from phalanx.home.stars import OWNER

        query, sort, project, limit, offset = self
        rows = workspace.rows
        runs = rows.runs(query, sort, limit=limit, offset=offset, project=project, unarchived=True, user=OWNER)
        count = rows.count(query, project=project, unarchived=True, user=OWNER)
        return runs, count, {run.id: why for run in runs if (why := workspace.waits_for(run))}

    def count_archived(self, workspace: Workspace) -> int:
        from phalanx.home.stars import OWNER

        return workspace.rows.count_archived(self.query, project=self.project, user=OWNER)

    def as_json(self, workspace: Workspace) -> dict[str, Any]:
        from phalanx.store.rows import run_row

        runs, count, waits = self.read(workspace)
        rows = [{**run_row(run), "waits_for": waits.get(run.id)} for run in runs]
        return {"ok": True, "count": count, "runs": rows, "archived": self.count_archived(workspace)}


def unsent_here() -> list[UnsentRun]:
    """The tracked runs of this home that no server has got yet."""
    from phalanx.home.home import default_home
    from phalanx.home.outbox import unsent_runs

    return unsent_runs(default_home())


@contextmanager
def _listed_anyway(unsent: list[UnsentRun], *, as_json: bool) -> Iterator[None]:
    """The runs that wait for a server are listed even if it cannot be reached."""
    try:
        yield
    except SystemFault:
        if unsent and not as_json:
            print_lines(table([[*HEAD, "WHY"], *(_unsent_row(run, ()) for run in unsent)]))
        raise


def _unsent_row(run: UnsentRun, columns: tuple[str, ...]) -> list[str]:
    where = f"not sent to {run.server}" if run.server else "not sent to its server"
    why = f"{where}: `phalanx sync` sends it" if run.status else where
    age = span(datetime.now(UTC) - run.created_at)
    fields = [run.id, printable(run.name or "-"), run.status or "tracked", age, "-", "-"]
    return [*fields, *("-" for _ in columns), printable(why)]


def _unsent_json(run: UnsentRun) -> dict[str, object]:
    return {**run._asdict(), "created_at": run.created_at.isoformat(), "folder": str(run.folder)}


def _archived_line(count: int) -> list[str]:
    if not count:
        return []
    runs = "1 archived run is" if count == 1 else f"{count:,} archived runs are"
    return [f"{runs} not shown; -q archived:true lists them"]


def _cell(run: Run, field: str) -> str:
    """The value of a field; `-` when the run has none."""
    from phalanx.store.run_fields import value_of

    value = value_of(run, field)
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M}"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


def _row(run: Run, columns: tuple[str, ...], waits: str | None) -> list[str]:
    took = (run.finished_at or datetime.now(UTC)) - run.started_at if run.started_at else None
    return [
        run.id,
        printable(run.name or "-"),
        run.status,
        span(datetime.now(UTC) - run.created_at),
        span(took) if took is not None else "-",
        printable(run.framework or "-"),
        *(_cell(run, field) for field in columns),
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
