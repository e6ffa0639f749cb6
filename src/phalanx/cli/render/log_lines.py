"""Log lines on the terminal: for `phalanx run` and `phalanx logs`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from phalanx.logs.fold import Fold, FoldedLine, folded, names_text, unfolded
from phalanx.logs.lines import LogLine, plain_text

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_SAID_AT_ONCE = 500


class LogPrinter:
    """Lines for people, with the names of their replicas, or one JSON object for each."""

    def __init__(self, names: Sequence[str], *, as_json: bool = False, times: bool = False, fold: bool = True) -> None:
        self.colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
        self.width = max((len(name) for name in names), default=0) + 2
        self.alone = len(names) == 1
        self.as_json = as_json
        self.times = times
        self.fold = Fold() if fold and not self.alone else None

    def show(self, lines: Iterable[LogLine], tail: int | None = None) -> None:
        """Print lines; of these, with `tail`, only the last ones."""
        items = self._folded(lines)
        if tail is not None:
            items = iter(deque(self._folded_to_the_end(lines), maxlen=tail))
        self._print(items)

    def close(self, before: float = float("inf")) -> None:
        """Print what still waited for its like."""
        if self.fold is not None:
            self._print(self.fold.close(before))

    def _folded(self, lines: Iterable[LogLine]) -> Iterator[FoldedLine]:
        if self.fold is None:
            yield from unfolded(lines)
        else:
            for line in lines:
                yield from self.fold.feed(line)

    def _folded_to_the_end(self, lines: Iterable[LogLine]) -> Iterator[FoldedLine]:
        return unfolded(lines) if self.fold is None else folded(lines)

    def _print(self, items: Iterator[FoldedLine]) -> None:
        """Many at a time: a terminal's library takes longer for a line than we do."""
        waiting: list[str] = []
        for item in items:
            waiting.append(json_line(item.line) if self.as_json else self._text(item))
            if len(waiting) >= _SAID_AT_ONCE:
                click.echo("\n".join(waiting))
                waiting.clear()
        if waiting:
            click.echo("\n".join(waiting))

    def _text(self, item: FoldedLine) -> str:
        text = plain(item.line.text)
        if not self.alone:
            text = f"{self._label(item.replicas)} {text}"
        return f"{time_text(item.line.at)} {text}" if self.times else text

    def _label(self, replicas: Sequence[str]) -> str:
        if len(replicas) == 1:
            return click.style(f"[{replicas[0]}]".ljust(self.width), fg=self.colours.get(replicas[0]))
        return click.style(f"[{names_text(replicas)} x{len(replicas)}]", bold=True)


def plain(text: str) -> str:
    """A line as it would stand on a terminal in the end, without anything that a terminal would obey."""
    return plain_text(text).expandtabs()


def json_line(line: LogLine, **more: Any) -> str:
    """ASCII only: the output of a program may contain control sequences of terminals."""
    return json.dumps({**line_row(line), **more})


def line_row(line: LogLine) -> dict[str, Any]:
    return {
        "at": datetime.fromtimestamp(line.at, UTC).isoformat(),
        "replica": line.replica,
        "rank": line.rank,
        "attempt": line.attempt,
        "line": line.text,
    }


def time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
