"""Submitting to a server: code is uploaded once, and the server checks the runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.interrupts import defer_signals
from phalanx.cli.render.output import printable
from phalanx.cli.render.progress import ProgressMeter, bytes_text, count_text
from phalanx.errors import CallError, SystemFault

if TYPE_CHECKING:
    from phalanx.cli.many_runs import Faults, QueuedRecord
    from phalanx.client import Client
    from phalanx.client.actions import Snapshot
    from phalanx.submission.model import Submission

    Wanted = tuple[Submission, int]  # to be queued so many times

MOST_RUNS = 10_000  # of one request


def check_sendable(submission: Submission) -> None:
    """Raises CallError for options of this machine."""
    if submission.is_built:
        raise CallError("--build is for this machine: a server installs no packages")
    named = [f"--{name}" for name, value in submission.cluster.items() if value is not None]
    if named:
        raise CallError(f"{', '.join(named)}: a server has a cluster of its own, which its kubernetes.yml names")


def send_code(client: Client, submission: Submission, *, quiet: bool) -> Snapshot:
    with ProgressMeter(quiet=quiet) as meter:
        code = client.upload_code(submission.code.folder or Path.cwd(), meter.show)
    if not quiet and sys.stderr.isatty():
        amount = f"{count_text(code.files)}, {bytes_text(code.size)}"
        click.echo(click.style(f"sent the code of this folder: {amount}", dim=True), err=True)
    return code


def print_answer_notes(notes: Sequence[Mapping[str, Any]], *, quiet: bool) -> None:
    """Print the notes of a server on the files of runs."""
    for note in () if quiet else notes:
        place = f"{note['file']}:{note['line']}:{note['column']}: " if note.get("line") else ""
        text = printable(f"{place}{note.get('message', '')}")
        click.echo(f"{click.style('note', fg='yellow')}: {text}", err=True)


class ServerBatch:
    """Runs that a call queues at a server: all of them or none, in requests of up to 10,000."""

    def __init__(self, client: Client, *, quiet: bool) -> None:
        self.client = client
        self.quiet = quiet
        self.wanted: list[Wanted] = []

    def add(self, submission: Submission, times: int, place: str) -> None:  # noqa: ARG002 - the server names it
        check_sendable(submission)
        self.wanted.append((submission, times))

    def create(self, faults: Faults) -> Iterator[QueuedRecord]:  # noqa: ARG002 - the server refuses all of a request
        queued, total = 0, sum(times for _, times in self.wanted)
        for request in requests_of(self.wanted):
            try:
                code = send_code(self.client, request[0][0], quiet=self.quiet or bool(queued))
                defer_signals()
                made = self.client.send_many(request, code)
            except (CallError, SystemFault) as fault:
                if not queued:
                    raise
                raise CallError(f"{total - queued} of {total} runs were not queued: {fault}") from None
            print_answer_notes(made.notes, quiet=self.quiet)
            queued += len(made.runs)
            yield from made.runs

    def close(self) -> None:
        self.wanted = []


def requests_of(wanted: Sequence[Wanted], most: int = MOST_RUNS) -> Iterator[list[Wanted]]:
    """The runs of each request."""
    request: list[Wanted] = []
    room = most
    for submission, times in wanted:
        left = times
        while left:
            some = min(left, room)
            request.append((submission, some))
            left, room = left - some, room - some
            if not room:
                yield request
                request, room = [], most
    if request:
        yield request
