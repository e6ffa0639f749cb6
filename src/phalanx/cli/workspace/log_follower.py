"""Follows the growing logs of several replicas and prints each line with its replica's name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from phalanx.cli.render.output import printable

if TYPE_CHECKING:
    from phalanx.logs.lines import LogLine

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_MOST_AT_ONCE = 1 << 16  # bytes of one log per read, so that a verbose rank does not hold up the others
_LONGEST_LINE = 4_000


class LogBatch(NamedTuple):
    """New lines. `before`: no line written before this time will follow; `tail`: print only the last ones."""

    lines: Iterator[LogLine]
    before: float
    tail: int | None = None


class LogTail:
    """Reads the lines completed in one file since the last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.rest = b""

    def lines(self, *, to_the_end: bool = False) -> Iterator[str]:
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return
        if size > self.offset:
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read(_MOST_AT_ONCE)
            self.offset += len(data)
            *whole, self.rest = (self.rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
            if len(self.rest) > _LONGEST_LINE:
                yield self.rest.decode("utf-8", "replace")
                self.rest = b""
        if to_the_end and self.offset >= size and self.rest:
            yield self.rest.decode("utf-8", "replace")
            self.rest = b""

    @property
    def at_end(self) -> bool:
        try:
            return self.offset >= os.stat(self.path).st_size
        except OSError:
            return True


class LogFollower:
    """Prints the logs of a run's replicas in turn."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.prefixes: dict[str, str] = {}
        self.tails: dict[str, LogTail] = {}

    def follow(self, folder: Path, attempt: int) -> None:
        for name in self.names:
            log = folder / "replicas" / name / f"attempt-{attempt}" / "log"
            if name not in self.tails or self.tails[name].path != log:
                self.tails[name] = LogTail(log)

    def print_new(self, *, to_the_end: bool = False) -> None:
        """Print the new lines."""
        while True:
            for name, tail in self.tails.items():
                for line in tail.lines(to_the_end=to_the_end):
                    self.print_line(name, line)
            if not to_the_end or all(tail.at_end for tail in self.tails.values()):
                return

    def print_line(self, name: str, line: str) -> None:
        click.echo(f"{self._prefix(name)}{printable(line.rstrip())[:_LONGEST_LINE]}")

    def _prefix(self, name: str) -> str:
        if name not in self.prefixes:
            number = self.names.index(name) if name in self.names else 0
            width = max((len(one) for one in self.names), default=0)
            label = click.style(name.ljust(width), fg=_COLOURS[number % len(_COLOURS)])
            self.prefixes[name] = f"{label} | " if len(self.names) > 1 else ""
        return self.prefixes[name]


def print_waiting(waits: str | None, printed: str) -> str:
    """Print why a run waits, if that changed since `printed`. Returns the reason printed last."""
    if waits and waits != printed:
        click.echo(printable(waits), err=True)
    return waits or printed
