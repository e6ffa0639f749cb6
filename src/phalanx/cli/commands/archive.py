"""phalanx archive"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_result
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("archive")
@click.argument("runs", nargs=-1, required=True)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Hide finished runs from lists, without deleting anything; a group with all its runs.

    `phalanx ps -q archived:true` lists them. A run that is resumed is no longer archived.
    """
    archive(runs, archived=True, as_json=as_json)


def archive(names: tuple[str, ...], *, archived: bool, as_json: bool) -> None:
    with open_workspace(quiet=as_json) as workspace:
        changed = workspace.acts.archive([find_run(workspace, name) for name in names], archived=archived)
    ids, verb = [run.id for run in changed], "archived" if archived else "unarchived"
    print_result({verb: ids}, f"{verb} {', '.join(ids)}", as_json=as_json)
