"""A text in the logs of a run, found log by log, a bounded stretch at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from phalanx.logs.lines import LONGEST_LINE, LogLine, plain_text
from phalanx.logs.time_index import times_of
from phalanx.logs.windows import LogReader, MergedLogReader, decoded

STRETCH = 1 << 20
BEFORE = LONGEST_LINE // 4  # of an endless line, so much of what stands before the text is shown

Find = Callable[[bytes, int], int]  # in a stretch, from a place on: where the text is, or -1


class SearchResult(NamedTuple):
    lines: list[LogLine]
    next: tuple[str, int] | None  # the log and the place to go on from; None when everything was searched
    size: int  # bytes that were looked through


def search(reels: MergedLogReader, text: str, start: tuple[str, int] | None, limit: int, most: int) -> SearchResult:
    """Lines that have a text, in large or small letters; up to so many lines and bytes."""
    finder = _finder(text)
    begin, place = _start(reels.each, start)
    found: list[LogLine] = []
    size = 0
    for reel in reels.each[begin:]:
        while place < reel.size:
            if len(found) >= limit or size >= most:
                return SearchResult(found, (reel.voice.name, place), size)
            end = min(reel.size, place + min(STRETCH, most - size))
            data = reel.read(place, end)
            if not data:
                break
            whole = _whole(data, len(text.encode()), is_last=place + len(data) >= reel.size)
            reached = _look(reel, place, data[:whole], finder, found, limit)
            size += reached
            place += reached
        place = 0
    return SearchResult(found, None, size)


def _start(reels: Sequence[LogReader], start: tuple[str, int] | None) -> tuple[int, int]:
    if start is not None:
        for number, reel in enumerate(reels):
            if reel.voice.name == start[0]:
                return number, start[1]
    return 0, 0


def _whole(data: bytes, length: int, *, is_last: bool) -> int:
    """How much of a stretch to look at: whole lines, or of an endless one all that the text cannot be cut in two by."""
    newline = data.rfind(b"\n") + 1
    return len(data) if is_last else newline or max(1, len(data) - length + 1)


def _look(reel: LogReader, place: int, data: bytes, find: Find, found: list[LogLine], limit: int) -> int:  # noqa: PLR0913, PLR0917 - where, what, how much
    """How much of a stretch was searched."""
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
        (at,) = times_of([place + reached], reel.notes.around(place + reached, place + reached), reel.changed_at)
        voice = reel.voice
        text = plain_text(decoded(piece))
        found.append(LogLine(at, voice.name, voice.rank, reel.attempt, text, place + first, place + reached))
    return reached


def _finder(text: str) -> Find:
    """Letters beyond ASCII are of several bytes, which differ between large and small."""
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
