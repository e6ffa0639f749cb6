"""phalanx stop"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json
from phalanx.cli.workspace.base import open_workspace

PATIENCE_S = 60.0


@click.command("stop")
@click.argument("runs", nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Return without waiting for the runs to end.")
@json_option
def command(runs: tuple[str, ...], no_wait: bool, as_json: bool) -> None:
    """Stop runs. Replicas that do not exit in time are killed.

    RUNS are ids, the first characters of ids, or names.
    """
    from phalanx.store.rows import run_row

    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = workspace.acts.stop([workspace.rows.find(run) for run in runs], 0 if no_wait else PATIENCE_S)
    if as_json:
        print_json({"ok": True, "runs": [run_row(run) for run in found]})
        return
    for run in found:
        click.echo(f"{run.id}: {run.status}: {run.reason}")
