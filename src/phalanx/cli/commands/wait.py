"""phalanx wait"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from phalanx.cli.options import json_option, seconds_of
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.store import Run

LOOK_S = 0.5
MOST_RUNS = 1000
FAILED, TIMED_OUT = 1, 124  # exit codes; the second is that of `timeout`


@click.command("wait")
@click.argument("runs", nargs=-1)
@click.option("-q", "--query", help="Wait for all runs that match the query now; see `phalanx ps --help`.")
@click.option("--any", "is_any", is_flag=True, help="Return when one of them has ended.")
@click.option("--timeout", metavar="TIME", help='Give up after this time: seconds, or "90m", "1d12h".')
@json_option
def command(runs: tuple[str, ...], query: str | None, is_any: bool, timeout: str | None, as_json: bool) -> None:
    """Wait until runs have ended.

    RUNS are ids, the first characters of ids, or names, also of groups. Prints each run when it ends. The exit code is
    0 if all of them succeeded, 1 if one did not, 124 if the time is over.
    """
    from phalanx.store.rows import run_row

    if bool(runs) == (query is not None):
        raise CallError("name the runs to wait for, or select them with --query")
    patience_s = seconds_of("--timeout", timeout)
    deadline = None if patience_s is None else time.monotonic() + patience_s
    with open_workspace(settled=False, quiet=as_json) as workspace:
        wanted = _chosen(workspace, runs, query)
        ended: list[Run] = []
        for run in _ending(workspace, wanted, deadline):
            ended.append(run)
            if not as_json:
                click.echo(f"{run.id}: {run.status}: {printable(run.reason)}")
            if is_any:
                break
        left = [] if is_any and ended else [run for run in wanted if run not in {one.id for one in ended}]
    if as_json:
        print_json({"ok": not left, "runs": [run_row(run) for run in ended], "active": left})
    elif left:
        click.echo(f"the time is over; {len(left)} not ended: {', '.join(left[:10])}", err=True)
    code = TIMED_OUT if left else FAILED if any(run.status != "succeeded" for run in ended) else 0
    sys.exit(code)


def _chosen(workspace: Workspace, runs: tuple[str, ...], query: str | None) -> list[str]:
    if query is None:
        return list(dict.fromkeys(find_run(workspace, run).id for run in runs))
    found = [run.id for run in workspace.rows.runs(query, limit=MOST_RUNS + 1)]
    if not found:
        raise CallError(f"no run matches `{query}`")
    if len(found) > MOST_RUNS:
        raise CallError(f"more than {MOST_RUNS:,} runs match `{query}`: select fewer")
    return found


def _ending(workspace: Workspace, wanted: list[str], deadline: float | None) -> Iterator[Run]:
    """The runs as they end, until the deadline. Runs of a local home proceed meanwhile."""
    active = list(wanted)
    with workspace.attended() as turn:
        while active:
            turn()
            for run in [run for run_id in active if (run := workspace.rows.find(run_id)).is_done]:
                active.remove(run.id)
                yield run
            if not active or (deadline is not None and time.monotonic() >= deadline):
                return
            time.sleep(LOOK_S if deadline is None else max(0.0, min(LOOK_S, deadline - time.monotonic())))
