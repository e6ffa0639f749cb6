"""Following the logs of a run until it is over: for `phalanx run` and `phalanx logs -f`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.render.output import printable
from phalanx.store.statuses import HELD

if TYPE_CHECKING:
    from phalanx.cli.render.log_lines import LogPrinter
    from phalanx.logs.lines import LogLine
    from phalanx.store import Run

SLICE_S = 0.1  # a Ctrl-C waits no longer than that


class LogBatch(NamedTuple):
    """Lines that came. `before`: none will come any more that was written before this time; `run`: as it was before
    they were read; `tail`: how many of them are wanted; `waits_for`: what a queued run waits for; `trouble`: why
    nothing could be read."""

    lines: Iterator[LogLine]
    before: float
    run: Run
    tail: int | None = None
    waits_for: str | None = None
    trouble: str = ""


def follow(
    batches: Generator[LogBatch, None, None],
    printer: LogPrinter | None,
    signals: Sequence[int],
    each: Callable[[Run], object] = lambda _: None,
) -> None:
    """Print the batches until the run is over, or a signal fills `signals`. Without a printer, the lines are not read.
    `each` is called with the run before its lines are printed."""
    waits, trouble = "", ""
    with closing(batches):
        for batch in batches:
            each(batch.run)
            if printer is not None:
                trouble = _print_trouble(batch.trouble, trouble)
                held = batch.run.reason if batch.run.reason.startswith(f"{HELD} ") else None
                waits = _print_waiting(batch.waits_for or held, waits)
                printer.show(batch.lines, batch.tail)
                printer.close(batch.before)
            if signals or (printer is None and batch.run.is_done):
                return


def wait(seconds: float, signals: Sequence[Any], *others: Sequence[Any]) -> bool:
    """Wait until a signal fills one of the lists, but no longer than that. Answers whether to go on: not when it is
    `signals`."""
    before = sum(map(len, (signals, *others)))
    deadline = time.monotonic() + seconds
    while sum(map(len, (signals, *others))) == before and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(SLICE_S, left))
    return not signals


def _print_waiting(waits: str | None, printed: str) -> str:
    """Print why a run waits, if that changed since `printed`. Returns the reason printed last."""
    if waits and waits != printed:
        click.echo(printable(waits), err=True)
    return waits or printed


def _print_trouble(trouble: str, printed: str) -> str:
    if trouble and not printed:
        click.echo(f"{click.style('warning', fg='yellow')}: {printable(trouble)}; trying again", err=True)
    return trouble
