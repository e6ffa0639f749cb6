"""phalanx stop"""

from __future__ import annotations

import time

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json

PATIENCE_S = 60.0


@click.command("stop")
@click.argument("runs", nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait until they have ended.")
@json_option
def command(runs: tuple[str, ...], no_wait: bool, as_json: bool) -> None:
    """Stop runs: every replica is asked to end, and killed when it does not."""
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home, run_row
        from phalanx.scheduler.serving import Attendant

        home, store = open_home()
        with store:
            found = [store.find(run) for run in runs]
            for run in found:
                if not run.is_done:
                    home.run(run.id).ask_to_stop("stopped by its user")
            attendant = Attendant(home, store)
            deadline = time.monotonic() + (0 if no_wait else PATIENCE_S)
            while True:
                attendant.turn()
                found = [store.find(run.id) for run in found]
                if all(run.is_done for run in found) or time.monotonic() >= deadline:
                    break
                time.sleep(attendant.pause_s)
            attendant.leave()
        if as_json:
            print_json({"ok": True, "runs": [run_row(run) for run in found]})
            return
        for run in found:
            click.echo(f"{run.id}: {run.status}: {run.reason}")
