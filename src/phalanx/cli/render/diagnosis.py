"""What `phalanx doctor --on BACKEND` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from phalanx.cli.render.output import print_lines, printable, table

if TYPE_CHECKING:
    from phalanx.backends.contract import Diagnosis, FactTable

_SHOWN = 40  # of long tables


def print_diagnosis(found: Diagnosis) -> None:
    facts = {name: text for name, text in found.facts.items() if text}
    for name, text in facts.items():
        click.echo(f"{name:<11} {printable(text)}")
    for one in found.tables:
        print_lines(_lines(one))
    if facts or found.tables:
        click.echo("")
    for note in found.notes:
        click.echo(f"{click.style('note', fg='yellow')}: {printable(note)}")
    for problem in found.problems:
        click.echo(f"{click.style('problem', fg='red')}: {printable(problem)}")
    count = len(found.problems)
    click.echo("ready for runs" if not count else f"{count} problem{'s' if count > 1 else ''}")


def _lines(found: FactTable) -> Iterator[str]:
    yield ""
    yield from table([found.head, *([printable(str(cell)) for cell in row] for row in found.rows[:_SHOWN])])
    if len(found.rows) > _SHOWN:
        yield f"and {len(found.rows) - _SHOWN} more; --json has all"
