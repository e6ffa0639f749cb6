"""phalanx rm"""

from __future__ import annotations

import sys

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_result
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("rm")
@click.argument("runs", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@json_option
def command(runs: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete finished runs with their logs, outputs and all other data; a group with all its runs."""
    from phalanx.submission.removal import require_finished

    with open_workspace(quiet=as_json) as workspace:
        found = [find_run(workspace, run) for run in runs]
        require_finished(found)
        ids = [run.id for run in found]
        if not yes and not as_json and not click.confirm(f"Permanently delete {', '.join(ids)}?"):
            sys.exit(1)
        workspace.acts.remove(found)
    print_result({"removed": ids}, f"removed {', '.join(ids)}", as_json=as_json)
