"""phalanx gc"""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, print_lines, printable, table
from phalanx.cli.render.progress import bytes_text
from phalanx.cli.workspace.base import open_workspace
from phalanx.errors import CallError

SHOWN_PROTECTED = 10
SHOWN_KEPT = 5  # files of one run


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, why, and how much that frees.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@click.option("--project", help="Only runs of this project, and of those nested in it.")
@json_option
def command(dry_run: bool, yes: bool, project: str | None, as_json: bool) -> None:
    """Remove outputs of finished runs that are no longer kept: checkpoints, and outputs that are too old or too large.

    The rules are `outputs.keep` of the files of runs, and `retention` in config.yml of the home. Metrics, params and
    logs always stay, and so do files that a model version refers to, and all files of runs that have not ended or that
    other runs refer to.
    """
    with open_workspace(quiet=as_json) as workspace:
        plan = workspace.retention.plan(project)
        if not as_json:
            print_lines(_lines(plan))
        is_wanted = bool(plan["runs"]) and not dry_run
        if is_wanted and not yes and (as_json or not click.confirm(f"Remove {bytes_text(plan['size'])}?")):
            raise CallError("nothing was removed: confirm with --yes")
        done: dict[str, Any] = workspace.retention.apply(project) if is_wanted else {"freed": 0, "troubles": []}
    if as_json:
        print_json({"ok": not done["troubles"], "dry_run": dry_run, **plan, **done})
    elif is_wanted:
        click.echo(f"removed {bytes_text(done['freed'])}")
        print_lines(f"{click.style('kept', fg='yellow')}: {printable(trouble)}" for trouble in done["troubles"])


def _lines(plan: dict[str, Any]) -> list[str]:
    lines = []
    if plan["runs"]:
        rows = [["RUN", "NAME", "PROJECT", "FILES", "SIZE", "WHY"]]
        for row in plan["runs"]:
            pushed = "; it is in remote storage" if row["pushed"] else ""
            cells = [row["run"], printable(row["name"] or "-"), printable(row["project"]), str(row["count"])]
            rows.append([*cells, bytes_text(row["size"]), printable(row["why"]) + pushed])
        lines += [*table(rows), f"{bytes_text(plan['size'])} in all"]
    else:
        lines.append("Nothing to remove.")
    for row in plan["runs"]:
        some = list(row["kept"].items())[:SHOWN_KEPT]
        lines += [f"kept: {row['run']} {printable(path)}: {printable(by)}" for path, by in some]
    kept = list(plan["protected"].items())
    lines += [f"kept: run {run_id}: {printable(why)}" for run_id, why in kept[:SHOWN_PROTECTED]]
    more = len(kept) - SHOWN_PROTECTED
    return [*lines, f"kept: {more} more runs; --json lists all"] if more > 0 else lines
