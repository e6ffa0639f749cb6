"""phalanx resume"""

from __future__ import annotations

import os
import sys
import time

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering
from phalanx.errors import CallError

PATIENCE_S = 15.0  # a background scheduler goes away by itself when it is idle


@click.command("resume")
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Queue it, print its id and return.")
@json_option
def command(run: str, detach: bool, as_json: bool) -> None:
    """Go on with a run that is over: the next attempt of the same run, with the same outputs.

    The training code must find its checkpoints in PHALANX_OUTPUTS by itself; PHALANX_ATTEMPT says which attempt it is.
    """
    with answering(as_json=as_json):
        from phalanx.cli.attending import see_through
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.cloning import resume
        from phalanx.scheduler.home import Lease

        home, store = open_home()
        with store:
            lease = Lease(home)
            deadline = time.monotonic() + PATIENCE_S
            while not lease.take():
                if time.monotonic() > deadline:
                    raise CallError("another scheduler is at work in this home: try again when its runs are over")
                time.sleep(0.1)
            found = resume(home, store, store.find(run), dict(os.environ), lease)
            lease.release()
            lease.close()
            code = see_through(home, store, found, detach=detach, as_json=as_json)
    sys.exit(code)
