"""phalanx unstar"""

from __future__ import annotations

import click

from phalanx.cli.commands.star import star
from phalanx.cli.options import json_option


@click.command("unstar")
@click.argument("runs", nargs=-1, required=True)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Remove your star from runs."""
    star(runs, is_starred=False, as_json=as_json)
