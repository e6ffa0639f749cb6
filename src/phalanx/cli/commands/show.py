"""phalanx show"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.commands.ps import span
from phalanx.cli.options import json_option
from phalanx.cli.render.left_files import left_lines
from phalanx.cli.render.output import print_json, print_lines, printable
from phalanx.cli.render.tables import failure_lines, replica_table, status_text
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.naming import PARENT

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.insight.stragglers import RunProgress
    from phalanx.store import Run


MOST_ALERTS = 5  # the newest; `phalanx events` has all


@click.command("show")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Show a run and its replicas: status, params, metrics and failures; of a pipeline, its ops and why one waits.

    RUN is an id, a name (the newest run of that name), or the first characters of an id.
    """
    from phalanx.cli.pipeline_watch import op_table
    from phalanx.cli.run_watch import metric_lines
    from phalanx.store.kinds import GROUP, PIPELINE, SCHEDULE

    with open_workspace(quiet=as_json) as workspace:
        found = find_run(workspace, run)
        if as_json:
            print_json(details_json(workspace, found))
            return
        facts, where = workspace.rows.facts(found.id), workspace.lies_in(found)
        ops_lines = op_table(workspace.pipeline(found)) if found.kind in (PIPELINE, SCHEDULE) else []
        waits = workspace.waits_for(found)
        replicas = workspace.rows.replicas(found.id)
        statuses = workspace.rows.statuses(found.id)
        progress = workspace.progress(found)
        metrics = metric_lines(workspace.series(found))
        alerts = workspace.tracked(found, ("alert",))
        parent = workspace.rows.labels(found.id).get(PARENT)
    click.echo(click.style(f"run {found.id}", bold=True) + (f" ({printable(found.name)})" if found.name else ""))
    click.echo(f"  status     {status_text(found.status)}: {printable(found.reason)}")
    if waits:
        click.echo(f"  waiting    {printable(waits)}")
    click.echo(f"  kind       {found.kind}" + (f", {printable(found.framework)}" if found.framework else ""))
    click.echo(f"  project    {printable(found.project)}, by {printable(found.user)}")
    click.echo(f"  created    {found.created_at.astimezone():%Y-%m-%d %H:%M:%S}")
    if found.started_at and found.finished_at:
        click.echo(f"  took       {span(found.finished_at - found.started_at)}, attempt {found.attempt}")
    if parent:
        click.echo(f"  parent     {printable(parent)}")
    if found.tags:
        click.echo(f"  tags       {printable(', '.join(found.tags))}")
    if found.params:
        click.echo(f"  params     {printable(', '.join(f'{key}={value}' for key, value in found.params.items()))}")
    print_lines([*fact_lines(facts, is_done=found.is_done), *straggler_lines(progress)])
    for alert in alerts[-MOST_ALERTS:]:
        click.echo(f"  alert      {printable(alert.text)}")
    for name, text in where.items():
        click.echo(f"  {name:<10} {text}")
    print_lines([f"  {line}" for line in left_lines(facts.get("files"))])
    click.echo("")
    print_lines(ops_lines or (_trial_lines(found, facts) if found.kind == GROUP else replica_table(replicas)))
    click.echo("")
    print_lines(failure_lines(facts, found.attempt) if found.status == "failed" else ())
    for line in metrics:
        click.echo(line)
    for change in statuses:
        click.echo(f"  {change.at.astimezone():%H:%M:%S}  {change.status:<10} {printable(change.reason)}")


def details_json(workspace: Workspace, run: Run) -> dict[str, Any]:
    """Everything that is known of a run; of a pipeline, also its ops."""
    from phalanx.cli.run_watch import run_json
    from phalanx.store.kinds import PIPELINE, SCHEDULE

    if workspace.server is not None:
        place = {"server": workspace.server}
    else:
        place = {"folder": workspace.lies_in(run)["folder"]}
    about = {**place, "labels": workspace.rows.labels(run.id), "facts": workspace.rows.facts(run.id)}
    ops = workspace.pipeline(run).summary if run.kind in (PIPELINE, SCHEDULE) else {}
    return {**run_json(workspace, run), **about, **ops}


def _trial_lines(group: Run, facts: dict[str, Any]) -> list[str]:
    from phalanx.cli.group_watch import progress_line

    search = facts.get("search")
    progress = [progress_line(group, search)] if search else []
    return [*progress, f"`phalanx group trials {group.id}` lists its runs"]


def fact_lines(facts: dict[str, Any], *, is_done: bool) -> list[str]:
    """The lines on the job, the progress, the datasets and the dropped values of a run."""
    lines = []
    job = facts.get("job")
    if isinstance(job, dict):
        at = f" on {printable(str(job['nodes']))}" if job.get("nodes") else ""
        lines.append(f"  job        {printable(str(job['handle']))}{at}")
    if "progress" in facts:
        lines.append(f"  progress   {progress_text(facts['progress'], is_done=is_done)}")
    for name, fact in facts.items():
        kind, _, which = name.partition(" ")
        if kind == "dataset":
            lines.append(
                f"  data       {printable(which)}" + (f" ({printable(fact['digest'])})" if fact["digest"] else "")
            )
        elif name in _MADE and isinstance(fact, list):
            lines += [f"  {_LABELS.get(name, name):<10} {printable(_MADE[name](row))}" for row in fact]
        elif kind == "dropped":
            why = printable("; ".join(list(fact["why"])[:3]))
            lines.append(f"  dropped    {fact['count']} values of {printable(which)}: {why}")
    return lines


def _model_text(row: dict[str, Any]) -> str:
    """What became of an entry of `models` in the file."""
    if row["path"] is None:
        return f"{row['name']}: {row['why']}"
    return f"{row['name']}/{row['version'] or '?'} from {row['path']}"


def _tracker_text(row: dict[str, Any]) -> str:
    return f"read {row['name']} of {row['tool']}"


def _told_text(row: dict[str, Any]) -> str:
    """Who was told of the run, or why that failed."""
    why = f": {row['why']}" if row.get("why") and row["state"] != "sent" else ""
    return f"of {row['event']}, by {row['channel']} to {row['to']}: {row['state']}{why}"


_MADE: dict[str, Callable[[dict[str, Any]], str]] = {
    "models": _model_text,
    "trackers": _tracker_text,
    "notifications": _told_text,
}
_LABELS = {"notifications": "notified"}


def straggler_lines(progress: RunProgress) -> list[str]:
    if progress.straggler is None:
        return []
    behind = progress.replicas[progress.straggler].behind
    return [f"  straggler  {progress.straggler} is {behind} steps behind the leading replica (step {progress.front})"]


def progress_text(progress: dict[str, Any], *, is_done: bool) -> str:
    """`30% (3 of 10), done in 5 min`: the estimate assumes the average speed so far."""
    done, total, since = progress["done"], progress["total"], progress["since"]
    label = f" {printable(progress['label'])}" if progress["label"] else ""
    if not total:
        return f"{done:g}{label}"
    text = f"{done / total:.0%} ({done:g} of {total:g}{label})"
    if is_done or done <= since["done"]:
        return text
    left_s = (total - done) * (progress["at"] - since["at"]) / (done - since["done"])
    return f"{text}, done in {span(timedelta(seconds=max(0.0, left_s)))}"
