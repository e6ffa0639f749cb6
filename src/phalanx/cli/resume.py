"""phalanx resume"""

from __future__ import annotations

import os
import sys
import time

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering
from phalanx.errors import CallError

PATIENCE_S = 30.0  # for a scheduler that is busy


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
        from phalanx.scheduler.home import Lease
        from phalanx.scheduler.resuming import ask_to_resume, heed_resumes

        home, store = open_home()
        with store:
            found = store.find(run)
            ask_to_resume(home, found, dict(os.environ))
            lease = Lease(home)
            deadline = time.monotonic() + PATIENCE_S
            while found.id in home.asked_to_resume():  # by a server, say; by ourselves when nobody schedules
                if lease.take():
                    heed_resumes(home, store)
                elif time.monotonic() > deadline:
                    raise CallError(f"whoever schedules here did not take up run {found.id}: see `phalanx doctor`")
                else:
                    time.sleep(0.05)
            lease.release()
            lease.close()
            found = store.find(found.id)
            code = see_through(home, store, found, detach=detach, as_json=as_json)
    sys.exit(code)
