"""phalanx star"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_result
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("star")
@click.argument("runs", nargs=-1, required=True)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Mark runs for yourself. `phalanx ps -q starred:true` lists them."""
    star(runs, is_starred=True, as_json=as_json)


def star(names: tuple[str, ...], *, is_starred: bool, as_json: bool) -> None:
    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = [find_run(workspace, name) for name in names]
        workspace.acts.star(found, is_starred=is_starred)
    ids, verb = [run.id for run in found], "starred" if is_starred else "unstarred"
    print_result({verb: ids}, f"{verb} {', '.join(ids)}", as_json=as_json)
