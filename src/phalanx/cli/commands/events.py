"""phalanx events"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.home.tracked_events import SHOWN

if TYPE_CHECKING:
    from phalanx.cli.workspace.events import RunEvent


@click.command("events")
@click.argument("run")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([*SHOWN, "all"]),
    help="Show what training recorded with tracking.text, tracking.table and so on instead. Repeatable.",
)
@json_option
def command(run: str, kinds: tuple[str, ...], as_json: bool) -> None:
    """Show the events of a run and its replicas in order of time: status changes, starts, exits, stop requests, alerts.

    With --json, --kind prints the whole content: the text, the columns and rows of a table.
    """
    with open_workspace(quiet=as_json) as workspace:
        found = find_run(workspace, run)
        wanted = SHOWN if "all" in kinds else kinds
        happened = workspace.tracked(found, wanted) if wanted else workspace.events(found)
    if as_json:
        print_json({"ok": True, "run_id": found.id, "events": [_row(event) for event in happened]})
        return
    width = max((len(event.replica or "run") for event in happened), default=0)
    for event in happened:
        when = f"{_time(event.at).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
        click.echo(f"{when}  {(event.replica or 'run').ljust(width)}  {printable(event.text)}")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _row(event: RunEvent) -> dict[str, Any]:
    return {
        "at": _time(event.at).isoformat(),
        "kind": event.kind,
        "replica": event.replica,
        "attempt": event.attempt,
        "text": event.text,
        **event.facts,
    }
