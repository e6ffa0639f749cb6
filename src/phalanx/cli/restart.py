"""phalanx restart"""

from __future__ import annotations

import sys

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering


@click.command("restart")
@click.argument("run")
@click.option("--copy", is_flag=True, help="Begin with the outputs of the first one.")
@click.option("-d", "--detach", is_flag=True, help="Queue it, print its id and return.")
@json_option
def command(run: str, copy: bool, detach: bool, as_json: bool) -> None:
    """Run a run once more, as a new run with outputs of its own."""
    with answering(as_json=as_json):
        from phalanx.cli.attending import see_through
        from phalanx.cli.interrupts import hold_signals
        from phalanx.cli.places import open_place

        with open_place(settled=False, quiet=as_json) as place:
            hold_signals()
            new = place.acts.clone(place.rows.find(run), "copy" if copy else "restart")
            code = see_through(place, new, detach=detach, as_json=as_json)
    sys.exit(code)
