"""phalanx copy"""

from __future__ import annotations

import sys

import click

from phalanx.cli.interrupts import defer_signals
from phalanx.cli.options import json_option
from phalanx.cli.workspace.base import open_workspace


@click.command("copy")
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
@json_option
def command(run: str, detach: bool, as_json: bool) -> None:
    """Submit a run again, as a new run that starts from a copy of its outputs."""
    from phalanx.cli.run_watch import watch_or_detach

    with open_workspace(settled=False, quiet=as_json) as place:
        defer_signals()
        new = place.acts.clone(place.rows.find(run), "copy")
        code = watch_or_detach(place, new, detach=detach, as_json=as_json)
    sys.exit(code)
