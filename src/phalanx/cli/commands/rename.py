"""phalanx rename"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_result, printable
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("rename")
@click.argument("run")
@click.argument("name")
@json_option
def command(run: str, name: str, as_json: bool) -> None:
    """Give a run another name."""
    from phalanx.store.rows import run_row

    with open_workspace(settled=False, quiet=as_json) as workspace:
        changed = workspace.acts.rename(find_run(workspace, run), name)
    print_result({"run": run_row(changed)}, f"{changed.id}: {printable(changed.name or '')}", as_json=as_json)
