"""phalanx priority"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("run")
@click.argument("priority", type=int)
@json_option
def command(run: str, priority: int, as_json: bool) -> None:
    """Change the priority of a queued run. Higher priorities leave the queue first.

    RUN is an id, the first characters of an id, or a name. PRIORITY is an integer; runs have 0 by default.
    """
    from phalanx.store.rows import run_row

    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = workspace.acts.set_priority(find_run(workspace, run), priority)
        waits = workspace.waits_for(found)
    if as_json:
        print_json({"ok": True, **run_row(found), "waits_for": waits})
        return
    waiting = f", {printable(waits)}" if waits else ""
    click.echo(f"{found.id}: priority {found.priority}; {found.status}{waiting}")
