"""phalanx restart"""

from __future__ import annotations

import os
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
        from phalanx.cli.attending import hold_signals, see_through
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.cloning import clone

        home, store = open_home()
        with store:
            hold_signals()
            new = clone(home, store, store.find(run), "copy" if copy else "restart", dict(os.environ))
            code = see_through(home, store, new, detach=detach, as_json=as_json)
    sys.exit(code)
