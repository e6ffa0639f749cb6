"""Search for a text in the logs of a run, log by log, with bounded work per call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from phalanx.logs.lines import LONGEST_LINE, LogLine, plain_text
from phalanx.logs.time_index import times_of
from phalanx.logs.windows import LogReader, MergedLogReader, decoded

STRETCH = 1 << 20
BEFORE = LONGEST_LINE // 4  # bytes shown before the text in a very long line

Find = Callable[[bytes, int], int]  # (data, start) -> position of the text, or -1


class SearchResult(NamedTuple):
    lines: list[LogLine]
    next: tuple[str, int] | None  # log and position to continue from; None if everything was searched
    size: int  # bytes searched


def search(logs: MergedLogReader, text: str, start: tuple[str, int] | None, limit: int, most: int) -> SearchResult:
    """Lines that contain a text, ignoring case; up to `limit` lines, searching up to `most` bytes."""
    finder = _finder(text)
    begin, offset = _start(logs.each, start)
    found: list[LogLine] = []
    size = 0
    for log in logs.each[begin:]:
        while offset < log.size:
            if len(found) >= limit or size >= most:
                return SearchResult(found, (log.source.name, offset), size)
            end = min(log.size, offset + min(STRETCH, most - size))
            data = log.read(offset, end)
            if not data:
                break
            whole = _whole(data, len(text.encode()), is_last=offset + len(data) >= log.size)
            reached = _look(log, offset, data[:whole], finder, found, limit)
            size += reached
            offset += reached
        offset = 0
    return SearchResult(found, None, size)


def _start(logs: Sequence[LogReader], start: tuple[str, int] | None) -> tuple[int, int]:
    if start is not None:
        for number, log in enumerate(logs):
            if log.source.name == start[0]:
                return number, start[1]
    return 0, 0


def _whole(data: bytes, length: int, *, is_last: bool) -> int:
    """How much of the data to search: whole lines; of a very long line, all but an end that may cut the text in two."""
    newline = data.rfind(b"\n") + 1
    return len(data) if is_last else newline or max(1, len(data) - length + 1)


def _look(log: LogReader, offset: int, data: bytes, find: Find, found: list[LogLine], limit: int) -> int:  # noqa: PLR0913, PLR0917 - where, what, how much
    """Add the lines found in the data. Returns how much of it was searched."""
    reached = 0
    haystack = data.lower()
    while len(found) < limit:
        hit = find(haystack, reached)
        if hit == -1:
            return len(data)
        first = max(data.rfind(b"\n", 0, hit) + 1, reached, hit - BEFORE)
        newline = data.find(b"\n", hit)
        reached = min(newline + 1 if newline != -1 else len(data), first + LONGEST_LINE)
        piece = data[first:reached].removesuffix(b"\n")
        (at,) = times_of([offset + reached], log.notes.around(offset + reached, offset + reached), log.changed_at)
        source = log.source
        text = plain_text(decoded(piece))
        found.append(LogLine(at, source.name, source.rank, log.attempt, text, offset + first, offset + reached))
    return reached


def _finder(text: str) -> Find:
    """A case-insensitive search. Outside ASCII, upper and lower case differ in several bytes."""
    if text.isascii():
        wanted = text.lower().encode()
        return lambda data, start: data.find(wanted, start)
    parts = []
    for sign in text:
        forms = dict.fromkeys(form.encode("utf-8", "replace").lower() for form in (sign, sign.lower(), sign.upper()))
        parts.append(b"(?:%s)" % b"|".join(map(re.escape, forms)))
    pattern = re.compile(b"".join(parts))

    def search(data: bytes, start: int) -> int:
        match = pattern.search(data, start)
        return match.start() if match else -1

    return search
