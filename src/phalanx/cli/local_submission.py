"""Submitting to the home of this machine: remarks are printed, signals wait until someone attends the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from phalanx.cli.interrupts import defer_signals
from phalanx.cli.render.backend_verdict import print_advice
from phalanx.cli.render.output import print_notes, printable

if TYPE_CHECKING:
    from phalanx.home.home import Home
    from phalanx.store import Run, Store
    from phalanx.submission.model import Notify, PreparedRun, Remark, Submission


def prepare_local(
    home: Home, store: Store, submission: Submission, *, times: int, quiet: bool
) -> list[Callable[[], Run]]:
    """Check a run and plan it so many times; each call of the result creates one. Raises SpecErrors, CallError."""
    from phalanx.submission.dependencies import with_dependencies
    from phalanx.submission.submit import create, prepare

    submission = with_dependencies(submission, store.find)
    first = prepare(home, submission, remark_printer(quiet=quiet), store)
    code = replace(submission.code, commit=first.run.commit)
    again = replace(submission, is_unchecked=True, code=code)  # the backend would say the same
    prepared = [first, *(prepare(home, again, lambda _: None, store) for _ in range(times - 1))]

    def created(one: PreparedRun) -> Run:
        defer_signals()
        return create(home, store, one)

    return [partial(created, one) for one in prepared]


def remark_printer(*, quiet: bool) -> Notify:
    """Prints remarks to standard error; no notes when `quiet`."""
    from phalanx.submission.model import RemarkKind

    def notify(remark: Remark) -> None:
        if remark.kind is RemarkKind.NOTE and quiet:
            return
        if remark.kind is RemarkKind.PROGRESS:
            click.echo(remark.about, err=True)
        elif isinstance(remark.about, str):
            label = click.style("warning", fg="yellow") if remark.kind is RemarkKind.WARNING else "note"
            click.echo(f"{label}: {printable(remark.about)}", err=True)
        elif remark.kind is RemarkKind.ADVICE:
            print_advice([remark.about], err=True)
        else:
            print_notes([remark.about], err=True)

    return notify
