"""phalanx unarchive"""

from __future__ import annotations

import click

from phalanx.cli.commands.archive import archive
from phalanx.cli.options import json_option


@click.command("unarchive")
@click.argument("runs", nargs=-1, required=True)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Show archived runs in lists again."""
    archive(runs, archived=False, as_json=as_json)
