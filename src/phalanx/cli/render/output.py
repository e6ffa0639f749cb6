"""Output of the verbs: JSON, or text without terminal control characters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from phalanx import strict_json
from phalanx.atomic_files import write_atomic, write_new
from phalanx.errors import CallError, Note, SpecError, SpecErrors, SystemFault, path_error

FILE_IS_WRONG = 1
CALL_IS_WRONG = 2
SHOWN_ERRORS = 50


@contextmanager
def report_errors(*, as_json: bool) -> Iterator[None]:
    """Print errors and exit: as text on standard error, or as JSON on standard output."""
    try:
        yield
    except SpecErrors as fault:
        if as_json:
            print_json({"ok": False, "errors": [error.as_json() for error in fault.errors]})
        else:
            print_errors(fault.errors)
        sys.exit(FILE_IS_WRONG)
    except (CallError, SystemFault) as fault:
        fail(str(fault), as_json=as_json)


def fail(message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        row = {"file": None, "line": 0, "column": 0, "path": "", "message": message, "suggestion": None}
        print_json({"ok": False, "errors": [row]})
    else:
        text = "\n  ".join(map(printable, message.split("\n")))  # indented: no line looks like another error
        click.echo(f"{click.style('error', fg='red', bold=True)}: {text}", err=True)
    sys.exit(CALL_IS_WRONG)


def print_json(data: Any, indent: int | None = None) -> None:
    """Print JSON on one line; `indent` is for files to keep."""
    click.echo(strict_json.dumps(data, indent=indent))


def print_result(data: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print what a verb did: as JSON, or as a sentence."""
    if as_json:
        print_json({"ok": True, **data})
    else:
        click.echo(text)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def printable(text: str) -> str:
    """Text with control characters escaped, so that a file cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_errors(errors: Sequence[SpecError]) -> None:
    for error in errors[:SHOWN_ERRORS]:
        _print_remark(error, click.style("error", fg="red", bold=True))
        if error.suggestion:
            click.echo(f"  {click.style('hint', fg='cyan')}: {printable(error.suggestion)}", err=True)
    hidden = len(errors) - SHOWN_ERRORS
    count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}"
    click.echo(count + (f" ({hidden} not shown; --json lists all)" if hidden > 0 else ""), err=True)


def _print_remark(remark: Note | SpecError, label: str) -> None:
    place = remark.place
    where = f"{place.file}:{place.line}:{place.column}" if place.line else place.file
    path = f" {remark.path}:" if remark.path else ""
    click.echo(f"{printable(where)}: {label}:{printable(f'{path} {remark.message}')}", err=True)
    if place.line and place.excerpt.strip():
        text, start, width = _window(place.excerpt, place.column - 1, place.width)
        number = str(place.line)
        click.echo(f"  {number} | {text}", err=True)
        underline = " " * start + click.style("^" * width, fg="red", bold=True)
        click.echo(f"  {' ' * len(number)} | {underline}", err=True)


def _window(line: str, start: int, width: int, room: int = 100) -> tuple[str, int, int]:
    """The part of a long line around the error, and the position of the error in it."""
    left = max(0, start - room // 2) if start + width > room else 0
    text = "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in line[left : left + room])
    start = min(start - left, len(text))
    return text, start, max(1, min(width, len(text) - start))


def print_notes(notes: Iterable[Note], *, err: bool = False) -> None:
    for note in notes:
        place = note.place
        where = f"{place.file}:{place.line}:{place.column}" if place.line else place.file
        click.echo(f"{click.style('note', fg='yellow')}: {printable(f'{where}: {note.message}')}", err=err)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in aligned columns; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def write_file(path: Path, text: str, *, force: bool) -> None:
    """Write a file atomically. Raises CallError if it exists, unless `force`."""
    write = write_atomic if force else write_new
    try:
        write(path, text.encode(), sync=False, mode=0o666)  # less the umask
    except FileExistsError:
        raise CallError(f"{path} exists: name another file with -o, or overwrite it with --force") from None
    except OSError as fault:
        raise path_error(f"cannot write {path}", fault) from None
