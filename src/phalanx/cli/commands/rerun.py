"""phalanx rerun"""

from __future__ import annotations

import json
import os
import sys

import click

from phalanx import run_paths
from phalanx.cli.interrupts import defer_signals
from phalanx.cli.options import json_option
from phalanx.cli.render.output import printable


@click.command("rerun")
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
@json_option
def command(run: str, detach: bool, as_json: bool) -> None:
    """Submit a run again, as recorded, and list what changed since: commit, Python, packages, host.

    A run with a snapshot uses the code of the snapshot; any other run uses the current code of its folder.
    """
    from phalanx.cli.run_watch import watch_or_detach
    from phalanx.cli.workspace.home import HomeWorkspace
    from phalanx.submission.clone import clone
    from phalanx.submission.provenance import collect, differences

    workspace = HomeWorkspace(settled=False)
    home, store = workspace.home, workspace.rows
    with store:
        found = store.find(run)
        records = home.run(found.id).path / run_paths.RECORDS
        if records.exists():
            now = collect(home, found, os.environ)
            for line in differences(json.loads(records.read_bytes()), now):
                click.echo(f"{click.style('changed', fg='yellow')}: {printable(line)}", err=True)
        else:
            click.echo("note: the environment of the run was not recorded; cannot list changes", err=True)
        defer_signals()
        new = clone(home, store, found, "rerun", dict(os.environ))
        code = watch_or_detach(workspace, new, detach=detach, as_json=as_json)
    sys.exit(code)
