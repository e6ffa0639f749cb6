"""phalanx stop"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.store import Run

PATIENCE_S = 60.0
NOTICE_S = 3.0  # then it says what it waits for


@click.command("stop")
@click.argument("runs", nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Return without waiting for the runs to end.")
@json_option
def command(runs: tuple[str, ...], no_wait: bool, as_json: bool) -> None:
    """Stop runs. Replicas that do not exit in time are killed.

    RUNS are ids, the first characters of ids, or names.
    """
    from phalanx.store.rows import run_row

    with open_workspace(settled=False, quiet=as_json) as workspace:
        asked, notices = [find_run(workspace, run) for run in runs], StopNotices(workspace)
        found = workspace.acts.stop(asked, 0 if no_wait else PATIENCE_S, notices.show)
    if as_json:
        print_json({"ok": True, "runs": [run_row(run) for run in found]})
        return
    for run in found:
        still = "" if run.is_done else " (it will be stopped)"
        click.echo(f"{run.id}: {run.status}: {printable(run.reason)}{still}")


class StopNotices:
    """Prints which runs have not ended yet and why, whenever that changes."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.next_at = time.monotonic() + NOTICE_S
        self.printed: dict[str, str] = {}

    def show(self, runs: Sequence[Run]) -> None:
        now = time.monotonic()
        if now < self.next_at:
            return
        self.next_at = now + NOTICE_S
        for run in runs:
            if run.is_done:
                continue
            why = self.workspace.waits_for(self.workspace.rows.find(run.id)) or "its replicas have not exited yet"
            if self.printed.get(run.id) != why:
                self.printed[run.id] = why
                click.echo(f"waiting for run {run.id} to end: {printable(why)}", err=True)
