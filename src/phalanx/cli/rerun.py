"""phalanx rerun"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, printable


@click.command("rerun")
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Queue it, print its id and return.")
@json_option
def command(run: str, detach: bool, as_json: bool) -> None:
    """Repeat a run as it was recorded, and say what has changed around it since.

    A run with a snapshot is repeated with that very code; any other with what its folder holds now.
    """
    with answering(as_json=as_json):
        from phalanx.cli.at_home import AtHome
        from phalanx.cli.attending import see_through
        from phalanx.cli.interrupts import hold_signals
        from phalanx.scheduler.cloning import clone, submitted
        from phalanx.scheduler.records import differences, gather

        place = AtHome(settled=False)
        home, store = place.home, place.rows
        with store:
            found = store.find(run)
            records = home.run(found.id).path / "records.json"
            if records.exists():
                working = Path(submitted(home, found).get("from", "."))
                now = gather(working, os.environ, found.params)
                for line in differences(json.loads(records.read_bytes()), now):
                    click.echo(f"{click.style('changed', fg='yellow')}: {printable(line)}", err=True)
            else:
                click.echo("note: the run's surroundings were not recorded; nothing can be compared", err=True)
            hold_signals()
            new = clone(home, store, found, "rerun", dict(os.environ))
            code = see_through(place, new, detach=detach, as_json=as_json)
    sys.exit(code)
