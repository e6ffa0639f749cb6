"""phalanx restart"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option


@click.command("restart")
@click.argument("run")
@click.option("--copy", is_flag=True, help="Start from a copy of its outputs.")
@click.option("-d", "--detach", is_flag=True, help="Queue the run, print its id and exit.")
@json_option
def command(run: str, copy: bool, detach: bool, as_json: bool) -> None:
    """Submit a run again, as a new run with empty outputs."""
    from phalanx.cli.run_watch import clone_and_watch

    clone_and_watch(run, "copy" if copy else "restart", detach=detach, as_json=as_json)
