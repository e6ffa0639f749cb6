"""Submitting to the home of this machine: remarks are printed, signals wait until someone attends the run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from phalanx.cli.interrupts import defer_signals
from phalanx.cli.render.backend_verdict import print_advice
from phalanx.cli.render.output import print_notes, printable

if TYPE_CHECKING:
    from phalanx.cli.many_runs import Faults
    from phalanx.home.home import Home
    from phalanx.store import Run, Store
    from phalanx.submission.model import Notify, Remark, Submission


def prepare_local(home: Home, store: Store, submission: Submission, *, quiet: bool) -> Callable[[], Run]:
    """Check a run and plan it; the result creates it. Raises SpecErrors, CallError."""
    from phalanx.submission.dependencies import with_dependencies
    from phalanx.submission.submit import create, prepare

    prepared = prepare(home, with_dependencies(submission, store.find), remark_printer(quiet=quiet), store)

    def created() -> Run:
        defer_signals()
        return create(home, store, prepared)

    return created


class HomeBatch:
    """Runs that a call queues in the home of this machine: all of them, or none."""

    def __init__(self, home: Home, store: Store, *, quiet: bool) -> None:
        from phalanx.submission.batch import SubmissionBatch

        self._batch = SubmissionBatch(home, store, remark_printer(quiet=quiet), sys.argv)

    def add(self, submission: Submission, times: int, place: str) -> None:  # noqa: ARG002 - it refuses at once
        self._batch.add(submission, times)

    def create(self, faults: Faults) -> Iterator[Run]:  # noqa: ARG002 - all were accepted
        defer_signals()
        return self._batch.publish()

    def close(self) -> None:
        self._batch.close()


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
