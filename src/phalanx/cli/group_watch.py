"""Watching a group until it finishes: a line for each trial that ends, and the progress of the search."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.interrupts import stop_on_interrupt
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.render.tables import span_text, status_text
from phalanx.cli.workspace.log_follower import wait
from phalanx.store.rows import run_row

if TYPE_CHECKING:
    from phalanx.cli.workspace.base import Workspace
    from phalanx.store import Run

PAUSE_S = 0.05
LOOK_S = 0.3  # how often to print what is new
TAKEN_S = 2.0  # for another scheduler to take a request to resume
WORDS = {"reported": "", "failed": "failed", "invalid": "invalid", "stopped": "stopped"}
CLEAR = "\r\x1b[K"


def watch_group(workspace: Workspace, group: Run, *, as_json: bool) -> int:
    """Follow a group until it ends or is paused. Ctrl-C stops it. Returns the exit code."""
    asked: list[str] = []
    hung_up = stop_on_interrupt(asked.append)
    before = (workspace.rows.facts(group.id).get("search") or {}).get("recent", ())
    follower = GroupFollower(max((end["seq"] for end in before), default=0), is_quiet=as_json)
    look_at, patient_until = 0.0, time.monotonic() + TAKEN_S
    with workspace.attended() as turn:
        while True:
            turn()
            if asked:
                asked.clear()
                workspace.acts.stop([group], 0.0, lambda _: None)
            if time.monotonic() >= look_at:
                group = workspace.rows.find(group.id)
                follower.show(group, workspace.rows.facts(group.id).get("search") or {})
                look_at = time.monotonic() + LOOK_S
            is_paused = group.status == "warning" and not follower.found.get("trials", {}).get("running")
            if group.is_done or (is_paused and time.monotonic() > patient_until) or not wait(PAUSE_S, hung_up, asked):
                break
    follower.clear()
    if hung_up:
        sys.exit(128 + signal.SIGHUP)
    if as_json:
        ok = group.status == "succeeded"
        print_json({"ok": ok, **run_row(group), "search": follower.found})
    else:
        for line in _result(group, follower.found):
            click.echo(line, err=True)
    if group.status == "stopped":
        return 128 + signal.SIGINT
    return 0 if group.status == "succeeded" else 1


class GroupFollower:
    """Prints each end of a trial once. On a terminal the progress is on a last line that is rewritten."""

    def __init__(self, seq: int, *, is_quiet: bool) -> None:
        """`seq`: the last record before; ends up to it are not printed."""
        self.is_quiet = is_quiet
        self.is_live = sys.stderr.isatty() and not is_quiet
        self.seq = seq
        self.found: Mapping[str, Any] = {}
        self.paused: str | None = None

    def show(self, group: Run, found: Mapping[str, Any]) -> None:
        self.found = found
        if self.is_quiet:
            return
        new = [end for end in found.get("recent", ()) if end["seq"] > self.seq]
        self.clear()
        for end in new:
            self.seq = end["seq"]
            click.echo(end_line(end, found), err=True)
        paused = found.get("paused")
        if paused and paused != self.paused:
            click.echo(f"{click.style('paused', fg='yellow')}: {printable(paused)}", err=True)
        self.paused = paused
        if self.is_live and not group.is_done:
            click.echo(progress_line(group, found), err=True, nl=False)

    def clear(self) -> None:
        if self.is_live:
            click.echo(CLEAR, err=True, nl=False)


def end_line(end: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """`trial 3: loss 0.31  lr=0.1 width=2`"""
    metric = (found.get("metric") or {}).get("name")
    rung = f" rung {end['rung']}" if end["rung"] else ""
    value = f" {printable(metric)} {number(end['value'])}" if metric and end["value"] is not None else ""
    word = WORDS.get(end["what"], end["what"]) or ("" if value else "done")
    why = f" ({printable(end['why'])})" if end["why"] and end["what"] != "reported" else ""
    return f"trial {end['trial']}{rung}:{value}{' ' if word else ''}{word}{why}  {params_text(end['params'])}"


def params_text(params: Mapping[str, Any]) -> str:
    return printable(" ".join(f"{name}={number(value)}" for name, value in params.items()))


def number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def value_text(row: Mapping[str, Any]) -> str:
    """`0.31`, or for the mean of repeated runs `0.31 ± 0.02`, half of its 95 % interval."""
    interval = row.get("interval")
    return number(row["value"]) + (f" ± {(interval[1] - interval[0]) / 2:.2g}" if interval else "")


def progress_line(group: Run, found: Mapping[str, Any]) -> str:
    """`12 of 27 trials, 3 running, 1 failed; best loss 0.1 (trial 4); about 2 min left`"""
    trials: Mapping[str, int] = found.get("trials") or {}
    ended = sum(count for name, count in trials.items() if name != "running")
    total = found.get("total")
    parts = [f"{ended} of {total} trials" if total else f"{ended} trials", f"{trials.get('running', 0)} running"]
    parts += [f"{trials[name]} {name}" for name in ("failed", "invalid", "stopped") if trials.get(name)]
    text = ", ".join(parts)
    best = best_value(found)
    if best:
        text += f"; best {best} (trial {found['best']['trial']})"
    if total and not group.is_done and group.started_at is not None and 0 < ended < total:
        left = (datetime.now(UTC) - group.started_at) / ended * (total - ended)
        text += f"; about {span_text(left.total_seconds())} left"
    return text


def best_value(found: Mapping[str, Any]) -> str:
    """`loss 0.1`; empty without a result."""
    best, metric = found.get("best"), found.get("metric")
    if not best or not metric:
        return ""
    return f"{printable(metric['name'])} {value_text(best)}"


def _result(group: Run, found: Mapping[str, Any]) -> list[str]:
    lines = ["", progress_line(group, found)]
    best = found.get("best")
    if best:
        lines.append(f"best: trial {best['trial']}, run {best['run']}: {best_value(found)}")
    lines.append(f"group {group.id}: {status_text(group.status)}: {printable(group.reason)}")
    if group.status == "warning":
        lines.append(
            f"`phalanx resume {group.id}` runs what failed again and goes on; `phalanx stop {group.id}` ends it"
        )
    return lines
