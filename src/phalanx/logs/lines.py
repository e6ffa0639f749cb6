"""Lines of many logs as one: when each was written, their order, which are the same, where the error is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

LOOK_S = 0.2  # how often an agent looks at its log: what a note covers was written at most so long before
WINDOW_S = 2.0  # how far apart the same line of two replicas is still told as one
LONGEST_LINE = 8_192  # bytes: an endless line is told in pieces

TRACEBACK = "Traceback (most recent call last)"
_STYLE = re.compile(r"\x1b\[[0-9;]*[mK]")  # a program's own colours: nothing to read, nothing to obey
# What a line that speaks of an error has in it: to be looked for in many lines at once.
ERROR_WORDS = (
    *(b"rror", b"Exception", b"Interrupt", b"ERROR", b"FATAL", b"CRITICAL", b"PANIC", b"atal", b"anic"),
    *(b"command not found", b"No such file", b"Permission denied", b"cannot start", b"Segmentation fault"),
    *(b"core dumped", b"terminate called", b"Assertion ", b"ut of memory", b"Killed"),
)


class LogLine(NamedTuple):
    at: float
    replica: str
    rank: int | None
    attempt: int
    text: str
    first: int = 0  # where in its log it begins
    end: int = 0  # and ends


class TimeIndex:
    """When a log had grown how far, by an agent's notes (time, size). To be asked for ever later places of the log.

    `notes` gives those that are new since it was last called. A line was written between the look before the note
    that covers it and that note; many lines of one note are spread over that time, in their order.
    """

    def __init__(self, notes: Callable[[], Iterator[tuple[float, int]]]) -> None:
        self._more = notes
        self._notes: Iterator[tuple[float, int]] | None = None
        self._from = self._to = (float("-inf"), 0)

    def refresh(self) -> None:
        """New notes may have come."""
        self._notes = None

    def at(self, end: int) -> float | None:
        """When the log had reached that size; None while no note says so."""
        while self._to[1] < end:
            if self._notes is None:
                self._notes = self._more()
            note = next(self._notes, None)
            if note is None:
                return None
            self._from, self._to = self._to, note
        (before, low), (at, high) = self._from, self._to
        since = max(before, at - LOOK_S)
        return since + (at - since) * min(1.0, max(0.0, (end - low) / (high - low))) if high > low else at


def cut(line: bytes, longest: int = LONGEST_LINE) -> list[bytes]:
    """A line in pieces that are not too long, none of which ends within a character; those of a progress bar end where
    it is drawn anew."""
    if len(line) <= longest:
        return [line]
    pieces = []
    start = 0
    while len(line) - start > longest:
        end = line.rfind(b"\r", start + 1, start + longest) + 1
        if end <= start + 1:
            end = start + longest
            end -= next((step for step in range(4) if line[end - step] & 0xC0 != 0x80), 0)
        pieces.append(line[start:end])
        start = end
    return [*pieces, line[start:]]


def split_lines(chunks: Iterable[bytes], offset: int = 0, *, whole: bool = True) -> Iterator[tuple[bytes, int]]:
    """The lines of a stretch of a log, and where in the log each ends. With `whole`, what stands at the end without a
    newline is a line too."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            *pieces, last = cut(line)
            for piece in pieces:
                offset += len(piece)
                yield piece, offset
            offset += len(last) + 1
            yield last, offset
        *pieces, rest = cut(rest)
        for piece in pieces:
            offset += len(piece)
            yield piece, offset
    if rest and whole:
        yield rest, offset + len(rest)


def plain_text(text: str) -> str:
    """A line as it would stand on a terminal in the end, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    text = _STYLE.sub("", text).rstrip().rpartition("\r")[2]  # a progress bar: what it wrote over is gone
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)
