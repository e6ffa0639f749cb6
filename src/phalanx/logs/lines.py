"""Log lines: splitting, times and plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LOOK_S = 0.2  # how often an agent checks its log: lines were written at most this long before their note
WINDOW_S = 2.0  # identical lines of two replicas within this time are folded
LONGEST_LINE = 8_192  # bytes: a longer line is split

TRACEBACK = "Traceback (most recent call last)"
_STYLE = re.compile(r"\x1b\[[0-9;:]*[mK]")  # colours
_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,40}m)")
# Parts of lines with an error, for a fast search in many lines at once.
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
    first: int = 0  # position in its log where it starts
    end: int = 0  # position where it ends


def cut(line: bytes, longest: int = LONGEST_LINE) -> list[bytes]:
    """Split a long line into pieces, never inside a character; pieces of a progress bar end where it is redrawn."""
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
    """The lines of a part of a log, and the position where each ends. With `whole`, an unfinished last line counts
    too."""
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
    """A line as a terminal would show it in the end, without control characters."""
    if text.isprintable():
        return text
    text = _STYLE.sub("", text).rstrip().rpartition("\r")[2]  # a progress bar: keep only its last state
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text)


def coloured_text(text: str) -> str:
    """As `plain_text`, but with the sequences that set colours, for a reader that draws them."""
    if text.isprintable():
        return text
    last = text.rstrip().rpartition("\r")[2]
    parts = _COLOUR.split(last)
    return "".join(part if number % 2 else plain_text(part) for number, part in enumerate(parts))
