"""Watching a pipeline until it finishes: a line for each op that starts or ends."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from phalanx.cli.interrupts import stop_on_interrupt
from phalanx.cli.render.output import print_json, printable, table
from phalanx.cli.render.tables import span_text, status_text
from phalanx.cli.workspace.log_follower import wait
from phalanx.naming import FINAL_STATUSES

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.client.pipelines import PipelineOp, PipelineView
    from phalanx.store import Run

PAUSE_S = 0.05
LOOK_S = 0.3  # how often to print what is new
SHOWN = ("waiting", "running", *FINAL_STATUSES)


def watch_pipeline(workspace: Workspace, run: Run, *, as_json: bool) -> int:
    """Follow a pipeline until it ends. Ctrl-C stops it. Returns the exit code."""
    asked: list[str] = []
    hung_up = stop_on_interrupt(asked.append)
    view, look_at = workspace.pipeline(run), 0.0
    seen = {op.name: (op.status, op.retries) for op in view.ops}
    with workspace.attended() as turn:
        while True:
            turn()
            if asked:
                asked.clear()
                workspace.acts.stop([run], 0.0, lambda _: None)
            if time.monotonic() >= look_at:
                view.refresh()
                for line in news(view, seen):
                    if not as_json:
                        click.echo(line, err=True)
                look_at = time.monotonic() + LOOK_S
            if view.status in FINAL_STATUSES or not wait(PAUSE_S, hung_up, asked):
                break
    if hung_up:
        sys.exit(128 + signal.SIGHUP)
    if as_json:
        print_json({"ok": view.status == "succeeded", **view.summary})
    else:
        click.echo(f"pipeline {view.id}: {status_text(view.status)}: {printable(view.reason)}", err=True)
        if view.status in ("failed", "stopped"):
            click.echo(f"`phalanx resume {view.id}` runs what did not succeed; the rest is kept", err=True)
    if view.status == "stopped":
        return 128 + signal.SIGINT
    return 0 if view.status == "succeeded" else 1


def news(view: PipelineView, seen: dict[str, tuple[str, int]]) -> Iterator[str]:
    """A line for each op whose status is new."""
    for op in view.ops:
        status = "running" if op.status in ("starting", "running") else op.status
        if (status, op.retries) != seen[op.name] and (status in SHOWN or op.retries != seen[op.name][1]):
            seen[op.name] = (status, op.retries)
            yield f"op {printable(op.name)}: {status_text(op.status)}{_about(op)}"


def _about(op: PipelineOp) -> str:
    run = f" (run {op.run_id})" if op.run_id is not None and op.status != "waiting" else ""
    if op.status == "succeeded" and op.outputs:
        return f"{run}  {printable(' '.join(f'{name}={value}' for name, value in op.outputs.items()))}"
    is_plain = op.status in ("running", "starting") or (op.status == "succeeded" and not op.is_reused)
    return run if is_plain else f"{run}: {printable(op.reason)}"


def _took(op: PipelineOp) -> str:
    if op.started_at is None:
        return "-"
    return span_text(((op.ended_at or datetime.now(UTC)) - op.started_at).total_seconds())


def op_table(view: PipelineView) -> list[str]:
    """The ops of a pipeline with their states, and why one waits."""
    head = ["OP", "KIND", "STATUS", "RUN", "TOOK", "AFTER", "WHY"]
    rows = [
        [
            printable(op.name),
            op.kind or "-",
            op.status,
            op.run_id or "-",
            _took(op),
            printable(", ".join(op.dependencies)) or "-",
            printable(op.reason)[:90],
        ]
        for op in view.ops
    ]
    lines = table([head, *rows])
    if view.summary["schedule"] is not None:
        lines.append(f"next tick: {view.summary['next_tick'] or 'none'}")
        lines += [f"tick {tick['at']}: pipeline {tick['run_id']}: {tick['status']}" for tick in view.summary["ticks"]]
    return lines
