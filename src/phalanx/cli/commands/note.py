"""phalanx note"""

from __future__ import annotations

import sys

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_lines, print_result, printable
from phalanx.cli.workspace.base import find_run, open_workspace


@click.command("note")
@click.argument("run")
@click.argument("text", required=False)
@json_option
def command(run: str, text: str | None, as_json: bool) -> None:
    """Print or replace the note of a run, which is Markdown.

    TEXT replaces the note; - reads it from standard input, and an empty TEXT removes it.
    """
    from phalanx.store.rows import run_row

    if text == "-":
        text = sys.stdin.read()
    with open_workspace(settled=False, quiet=as_json) as workspace:
        found = find_run(workspace, run)
        if text is not None:
            found = workspace.acts.describe(found, text)
    if as_json or text is not None:
        print_result({"run": run_row(found)}, f"changed the note of {found.id}", as_json=as_json)
        return
    print_lines(map(printable, (found.description or "").splitlines()))
