"""phalanx resume"""

from __future__ import annotations

import sys

import click

from phalanx.cli.options import json_option
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("resume")
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
@json_option
def command(run: str, detach: bool, as_json: bool) -> None:
    """Continue a finished run as its next attempt, with the same outputs.

    The training code must load its checkpoints from PHALANX_OUTPUTS. PHALANX_ATTEMPT is the number of the attempt.
    A group runs its failed and stopped trials again. A pipeline keeps the ops that succeeded, and goes on from those
    that did not.
    """
    from phalanx.cli.run_watch import watch_or_detach

    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = workspace.acts.resume(find_run(workspace, run))
        code = watch_or_detach(workspace, found, detach=detach, as_json=as_json)
    sys.exit(code)
