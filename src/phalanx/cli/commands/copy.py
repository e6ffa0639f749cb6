"""phalanx copy"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option


@click.command("copy")
@click.argument("run")
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
@json_option
def command(run: str, detach: bool, as_json: bool) -> None:
    """Submit a run again, as a new run that starts from a copy of its outputs."""
    from phalanx.cli.run_watch import clone_and_watch

    clone_and_watch(run, "copy", detach=detach, as_json=as_json)
