"""Watching a submitted run until it finishes; used by every verb that starts a run."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from phalanx.cli.interrupts import defer_signals, restore_signals
from phalanx.cli.render.left_files import left_lines
from phalanx.cli.render.output import print_json, print_result, printable
from phalanx.cli.render.tables import failure_lines, replica_table, status_text
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.store.kinds import PIPELINE, SCHEDULE, WHOLES
from phalanx.store.rows import replica_row, run_row, status_row

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import SeriesReader, Workspace
    from phalanx.store import Run


METRICS_SHOWN = 6
SHAPE = 40  # characters of a sparkline


def clone_and_watch(run: str, how: str, *, detach: bool, as_json: bool) -> NoReturn:
    """Submit a run again, watch the new one, and exit with its code. `how`: restart or copy."""
    with open_workspace(settled=False, quiet=as_json) as workspace:
        defer_signals()
        new = workspace.acts.clone(find_run(workspace, run), how)
        code = watch_or_detach(workspace, new, detach=detach, as_json=as_json)
    sys.exit(code)


def watch_or_detach(workspace: Workspace, run: Run, *, detach: bool, as_json: bool) -> int:
    """Detach from a run just submitted, or watch it until it finishes. Returns the exit code of the verb."""
    if detach or run.kind == SCHEDULE:  # its ticks are made by a server
        leave(workspace, run)
        print_result({"id": run.id, "status": run.status}, run.id, as_json=as_json)
        return 0
    if not as_json:
        what = run.kind if run.kind in WHOLES else "run"
        click.echo(click.style(f"{what} {run.id}" + (f" ({run.name})" if run.name else ""), bold=True), err=True)
    if run.kind == "group":
        from phalanx.cli.group_watch import watch_group

        return watch_group(workspace, run, as_json=as_json)
    if run.kind == PIPELINE:
        from phalanx.cli.pipeline_watch import watch_pipeline

        return watch_pipeline(workspace, run, as_json=as_json)
    run = workspace.acts.attend(run, quiet=as_json)
    return report(workspace, run, as_json=as_json)


def leave(workspace: Workspace, run: Run) -> None:
    """Make sure that a run just submitted continues without this process, which receives signals again."""
    restore_signals()
    workspace.acts.leave(run)


def report(workspace: Workspace, run: Run, *, as_json: bool) -> int:
    """Print the result of a run as a table or JSON. Returns the exit code."""
    run = workspace.rows.find(run.id)
    replicas, facts = workspace.rows.replicas(run.id), workspace.rows.facts(run.id)
    if as_json:
        print_json(run_json(workspace, run))
    else:
        click.echo("", err=True)
        lines = [*replica_table(replicas), *metric_lines(workspace.series(run))]
        if len(replicas) != 1 and run.status == "failed":  # none has started if its build failed
            lines += failure_lines(facts, run.attempt)
        lines.append(f"run {run.id}: {status_text(run.status)}: {printable(run.reason)}")
        folder = workspace.lies_in(run).get("folder")
        lines.append(f"outputs: {f'{folder}/outputs' if folder else f'phalanx outputs {run.id}'}")
        lines += left_lines(facts.get("files"))
        for line in lines:
            click.echo(line, err=True)
    return exit_code(run, replicas, facts.get("failure") or {})


def run_json(workspace: Workspace, run: Run) -> dict[str, Any]:
    """A run with its replicas, how far they are, and its statuses."""
    from phalanx.insight.stragglers import progress_row

    progress = workspace.progress(run)
    replicas = workspace.rows.replicas(run.id)
    return {
        "ok": run.status not in ("failed", "upstream_failed"),
        **run_row(run),
        "front": progress.front,
        "straggler": progress.straggler,
        "replicas": [{**replica_row(one), **progress_row(progress.replicas.get(one.name))} for one in replicas],
        "files": workspace.rows.facts(run.id).get("files"),
        "statuses": [status_row(change) for change in workspace.rows.statuses(run.id)],
    }


def metric_lines(series: SeriesReader) -> list[str]:
    """One line for each of the first metrics: approximate first value, sparkline, last value, minimum and maximum."""
    from phalanx.cli.render.sparklines import sparkline

    names = series.names()
    width = max((len(printable(name)) for name in names[:METRICS_SHOWN]), default=0)
    lines = []
    summaries = series.summaries(names[:METRICS_SHOWN])
    for name in names[:METRICS_SHOWN]:
        first_replica = series.replicas(name)[0]
        buckets = series.buckets(name, SHAPE, first_replica)[first_replica]
        shape = sparkline([bucket.mean for bucket in buckets], SHAPE)
        first = "-" if buckets[0].mean is None else f"{buckets[0].mean:.4g}"
        summary = summaries[name]
        best = "" if summary.min is None else f"min {summary.min:.4g}, max {summary.max:.4g}"
        lines.append(f"{printable(name).ljust(width)}  {first:<8} {shape} {summary.last:<8.4g} {best}".rstrip())
    more = len(names) - len(lines)
    return [*lines, *([f"and {more} more metrics"] if more > 0 else []), *([""] if lines else [])]


def exit_code(run: Run, replicas: list[Any], failure: dict[str, Any]) -> int:
    """0 for a succeeded run, else the exit code of the replica that failed first (128 + N for signal N)."""
    if run.status == "succeeded":
        return 0
    if run.status == "stopped":
        return 128 + signal.SIGINT
    first = next((row for row in replicas if row.name == failure.get("replica")), replicas[0] if replicas else None)
    if first is None:
        return 1
    if first.code:
        return int(first.code)
    return 128 + int(first.signal) if first.signal else 1
