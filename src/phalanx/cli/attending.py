"""Staying with a run until it is over: shared by every verb that starts one."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import print_json, printable
from phalanx.cli.tables import failure_lines, replica_table, status_text
from phalanx.naming import named

if TYPE_CHECKING:
    from phalanx.scheduler.home import Home, RunFolder
    from phalanx.store import Run, Store


METRICS_SHOWN = 6
SHAPE = 40  # characters of a sparkline
HELD = (signal.SIGINT, signal.SIGTERM)


def hold_signals() -> None:
    """From before a run is submitted until someone attends it: a Ctrl-C in between waits, and then stops the run."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def see_through(home: Home, store: Store, run: Run, *, detach: bool, as_json: bool) -> int:
    """A run that was just submitted: left to a background scheduler, or attended until it is over. Answers the exit
    code of the verb."""
    if detach:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        from phalanx.scheduler.serving import start_background

        start_background(home)
        keep_records(home, run)
        if as_json:
            print_json({"ok": True, "id": run.id, "status": run.status})
        else:
            click.echo(run.id)
        return 0
    run = attend(home, store, run, quiet=as_json, once_started=lambda: keep_records(home, run))
    return report(home, store, run, as_json=as_json)


def keep_records(home: Home, run: Run) -> None:
    """What it would take to do the run again, beside it. Costs some time, so it is done while the run starts."""
    from phalanx.backends.attempts import write_whole
    from phalanx.scheduler.cloning import submitted
    from phalanx.scheduler.records import gather

    source = submitted(home, run)
    records = gather(Path(source.get("from", ".")), home.environment(run.id), run.params)
    try:
        write_whole(home.run(run.id).path / "records.json", json.dumps(records, indent=1).encode())
    except OSError as fault:
        click.echo(f"note: the run's surroundings could not be kept: {fault.strerror}", err=True)


def _names(folder: RunFolder) -> tuple[str, ...]:
    """The replicas that run something, from the plan."""
    plan = json.loads(folder.plan_file.read_bytes())
    return tuple(named(replica) for replica in plan["replicas"] if replica["argv"])


def attend(home: Home, store: Store, run: Run, *, quiet: bool, once_started: Callable[[], None] | None = None) -> Run:
    """Stay with a run until it is over: schedule it when nobody else does, and show what it says."""
    from phalanx.cli.following import Chorus
    from phalanx.cli.ps import waits_for
    from phalanx.scheduler.serving import Attendant

    attendant = Attendant(home, store)
    folder = home.run(run.id)
    chorus = Chorus(_names(folder))
    hung_up = _stop_on_interrupt(folder)
    started, told = False, ""
    if not quiet:
        click.echo(click.style(f"run {run.id}" + (f" ({run.name})" if run.name else ""), bold=True), err=True)
    try:
        while not run.is_done and not hung_up:
            attendant.turn()
            run = store.find(run.id)
            waits = waits_for(store, run) if not quiet else None
            if waits and waits != told:
                told = waits
                click.echo(printable(waits), err=True)
            if run.attempt and not started:
                started = True
                if once_started is not None:
                    once_started()  # what takes time, and need not delay the start
            if run.attempt and not quiet:
                chorus.follow(folder.path, run.attempt)
                chorus.sing()
            if not run.is_done:
                time.sleep(attendant.pause_s)
        if not quiet and not hung_up:
            chorus.sing(to_the_end=True)
    finally:
        attendant.leave()
    if hung_up:
        sys.exit(128 + signal.SIGHUP)
    return run


def _stop_on_interrupt(folder: Any) -> list[int]:
    """Ctrl-C and TERM stop the run. A closed terminal does not: the list it answers is filled, and we leave."""
    hung_up: list[int] = []

    def stop(number: int, _: Any) -> None:
        folder.ask_to_stop("interrupted" if number == signal.SIGINT else "terminated")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, lambda number, _: hung_up.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    return hung_up


def report(home: Home, store: Store, run: Run, *, as_json: bool) -> int:
    """What happened, as a table or JSON. Answers the exit code."""
    replicas = store.replicas(run.id)
    if as_json:
        from phalanx.cli.homes import run_json

        print_json(run_json(store, run))
    else:
        click.echo("", err=True)
        for line in replica_table(replicas):
            click.echo(line, err=True)
        for line in metric_lines(home.run(run.id)):
            click.echo(line, err=True)
        if len(replicas) > 1 and run.status == "failed":
            for line in failure_lines(store.facts(run.id), run.attempt):
                click.echo(line, err=True)
        click.echo(f"run {run.id}: {status_text(run.status)}: {printable(run.reason)}", err=True)
        click.echo(f"outputs: {home.run(run.id).path / 'outputs'}", err=True)
    return exit_code(run, replicas, store.facts(run.id).get("failure") or {})


def metric_lines(folder: RunFolder) -> list[str]:
    """How the metrics went, the first few of them: about where they began, their shape, the last value."""
    from phalanx.cli.sparklines import sparkline
    from phalanx.store.series import RunSeries

    series = RunSeries(folder.path)
    names = series.names()
    width = max((len(printable(name)) for name in names[:METRICS_SHOWN]), default=0)
    lines = []
    for name in names[:METRICS_SHOWN]:
        buckets = series.buckets(name, SHAPE, series.replicas(name)[0])[series.replicas(name)[0]]
        shape = sparkline([bucket.mean for bucket in buckets], SHAPE)
        first = "-" if buckets[0].mean is None else f"{buckets[0].mean:.4g}"
        lines.append(f"{printable(name).ljust(width)}  {first:<8} {shape} {buckets[-1].last:.4g}")
    more = len(names) - len(lines)
    return [*lines, *([f"and {more} more metrics"] if more > 0 else []), *([""] if lines else [])]


def exit_code(run: Run, replicas: list[Any], failure: dict[str, Any]) -> int:
    """0 for a run that succeeded; the code of the replica that failed first; as a shell has it for signals."""
    if run.status == "succeeded":
        return 0
    if run.status == "stopped":
        return 128 + signal.SIGINT
    first = next((row for row in replicas if row.name == failure.get("replica")), replicas[0] if replicas else None)
    if first is None:
        return 1
    if first.code:
        return int(first.code)
    return 128 + int(first.signal) if first.signal else 1
