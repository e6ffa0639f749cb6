"""phalanx statuses"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("statuses")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Show the status history of a run, with times and reasons."""
    from phalanx.store.rows import status_row

    with open_workspace(quiet=as_json) as workspace:
        changes = workspace.rows.statuses(find_run(workspace, run).id)
    if as_json:
        print_json({"ok": True, "statuses": [status_row(change) for change in changes]})
        return
    for change in changes:
        when = f"{change.at.astimezone():%Y-%m-%d %H:%M:%S}"
        click.echo(f"{when}  {change.status:<10} attempt {change.attempt}  {printable(change.reason)}")
