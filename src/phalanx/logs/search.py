"""Search for a pattern in the logs of a run, log by log, with bounded work per call."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from phalanx.logs.line_pattern import LinePattern, Span
from phalanx.logs.lines import LONGEST_LINE, LogLine, plain_text
from phalanx.logs.time_index import times_of
from phalanx.logs.windows import LogReader, MergedLogReader, decoded

STRETCH = 1 << 20
BEFORE = LONGEST_LINE // 4  # bytes shown before the match in a very long line
_STYLE = re.compile(rb"\x1b\[[0-9;:]*[mK]")  # colours: they may stand inside of what is searched


class FoundLine(NamedTuple):
    """A line, and where in its text the match is."""

    line: LogLine
    span: Span


class SearchResult(NamedTuple):
    lines: list[FoundLine]
    next: tuple[str, int] | None  # log and position to continue from; None if everything was searched
    size: int  # bytes searched


class SearchLimits(NamedTuple):
    lines: int
    size: int  # bytes to search
    seconds: float


def search(
    logs: MergedLogReader,
    pattern: LinePattern,
    start: tuple[str, int] | None,
    limits: SearchLimits,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Lines that match, within the limits."""
    begin, offset = _start(logs.each, start)
    found: list[FoundLine] = []
    size, deadline = 0, clock() + limits.seconds
    for log in logs.each[begin:]:
        while offset < log.size:
            if len(found) >= limits.lines or size >= limits.size or (size and clock() > deadline):
                return SearchResult(found, (log.source.name, offset), size)
            end = min(log.size, offset + min(STRETCH, limits.size - size))
            data = log.read(offset, end)
            if not data:
                break
            whole = _whole(data, pattern.longest or 1, is_last=offset + len(data) >= log.size)
            look = _look_at_lines if b"\x1b" in data else _look
            reached = look(log, offset, data[:whole], pattern, found, limits.lines)
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


def _look(  # noqa: PLR0913, PLR0917 - where, what, how much
    log: LogReader, offset: int, data: bytes, pattern: LinePattern, found: list[FoundLine], limit: int
) -> int:
    """Add the lines found in the data. Returns how much of it was searched."""
    reached = 0
    while len(found) < limit:
        span = pattern.find(data, reached)
        if span is None:
            return len(data)
        first = max(data.rfind(b"\n", 0, span[0]) + 1, reached, span[0] - BEFORE)
        newline = data.find(b"\n", span[0])
        reached = min(newline + 1 if newline != -1 else len(data), first + LONGEST_LINE)
        found.append(_found(log, offset, first, reached, data, pattern))
    return reached


def _look_at_lines(  # noqa: PLR0913, PLR0917 - see `_look`
    log: LogReader, offset: int, data: bytes, pattern: LinePattern, found: list[FoundLine], limit: int
) -> int:
    """As `_look`, for data with colours: they are removed from each line first."""
    reached = 0
    while reached < len(data) and len(found) < limit:
        newline = data.find(b"\n", reached)
        end = min(newline + 1 if newline != -1 else len(data), reached + LONGEST_LINE)
        if pattern.find(_STYLE.sub(b"", data[reached:end]), 0) is not None:
            found.append(_found(log, offset, reached, end, data, pattern))
        reached = end
    return reached


def _found(  # noqa: PLR0913, PLR0917 - see `_look`
    log: LogReader, offset: int, first: int, end: int, data: bytes, pattern: LinePattern
) -> FoundLine:
    (at,) = times_of([offset + end], log.notes.around(offset + end, offset + end), log.changed_at)
    source = log.source
    text = plain_text(decoded(data[first:end].removesuffix(b"\n")))
    shown = text.encode("utf-8", "replace")
    span = pattern.find(shown, 0) or (0, 0)  # none, if the text has control characters at the match
    place = (len(shown[: span[0]].decode("utf-8", "ignore")), len(shown[: span[1]].decode("utf-8", "ignore")))
    return FoundLine(LogLine(at, source.name, source.rank, log.attempt, text, offset + first, offset + end), place)
