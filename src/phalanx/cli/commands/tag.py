"""phalanx tag"""

from __future__ import annotations

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError


@click.command("tag", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="RUN... [+TAG|-TAG]...")
@json_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """Add and remove tags of runs: `phalanx tag my-run +baseline -draft`.

    Without tags, print those of each run.
    """
    from phalanx.store.rows import run_row

    names = [word for word in words if not word.startswith(("+", "-"))]
    added = [word[1:] for word in words if word.startswith("+")]
    removed = [word[1:] for word in words if word.startswith("-")]
    if not names:
        raise CallError("name a run: `phalanx tag RUN +a -b`")
    if set(added) & set(removed):
        raise CallError(f"`{min(set(added) & set(removed))}` is both added and removed")
    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = [find_run(workspace, name) for name in names]
        if added or removed:
            found = workspace.acts.tag(found, added, removed)
    if as_json:
        print_json({"ok": True, "runs": [run_row(run) for run in found]})
        return
    for run in found:
        click.echo(f"{run.id}: {printable(', '.join(run.tags)) or 'no tags'}")
