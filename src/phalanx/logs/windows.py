"""Some lines of many long logs, around a place: only what is near it is read, in either direction.

Places are counted in bytes, one for each log, so going on from where a window ended neither misses a line nor tells one
twice, whatever the clocks of the machines say.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple

from phalanx.ends import END_FILE
from phalanx.logs.first_error import Excerpt, first_error
from phalanx.logs.fold import FoldedLine, Groups, unfolded
from phalanx.logs.lines import ERROR_WORDS, LONGEST_LINE, TRACEBACK, WINDOW_S, LogLine, plain_text, split_lines
from phalanx.logs.merge import in_order
from phalanx.logs.replica_logs import LogSource, attempt_folder, open_log
from phalanx.logs.time_index import TimeNotes, size_at, times_of

SMALL, LARGE = 1 << 12, 1 << 16  # bytes that are read at a time, of many logs and of few
NEAR = 1 << 12  # bytes before an error that are shown, or nearly
MOST_READ = 40_000  # lines of a window, before those that are alike are told as one

Placed = tuple[float, int, int, int, bytes]  # when, by which log, from where to where, what
Taken = tuple[list[FoldedLine], list[Placed | None]]  # lines, and of each log the last that is among them


class LogReader:
    """One log, read from any place on, forwards or backwards. Of one that may grow, only whole lines."""

    def __init__(self, run_folder: Path, voice: LogSource, attempt: int, number: int, *, is_over: bool) -> None:
        self.folder = attempt_folder(run_folder, voice.name, attempt)
        self.voice = voice
        self.attempt = attempt
        self.number = number
        self.size, self.changed_at, self.is_there, self.is_over = 0, 0.0, False, is_over
        with suppress(OSError):
            self.is_over = is_over or (self.folder / END_FILE).exists()  # in this order: nothing comes after its end
            facts = os.stat(self.folder / "log", follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                self.size, self.changed_at, self.is_there = facts.st_size, facts.st_mtime, True
        self.notes = TimeNotes(self.folder / "spool")

    def read(self, first: int, end: int) -> bytes:
        stream = open_log(self.folder) if first < end else None
        if stream is None:
            return b""
        with stream:
            return os.pread(stream.fileno(), end - first, first)

    def end(self) -> int:
        """Where the last whole line ends."""
        if self.is_over or not self.size:
            return self.size
        start = max(0, self.size - LONGEST_LINE)
        tail = self.read(start, self.size)
        whole = tail.rfind(b"\n")
        if whole == -1 and start:  # an endless one: then what it says now
            whole = tail.rfind(b"\r", 0, -1)
        return start + whole + 1 if whole >= 0 or not start else self.size

    def has_more(self, place: int) -> bool:
        """Whether `forward` would give a line."""
        left = self.size - place
        return left > 0 and (self.is_over or left > LONGEST_LINE or b"\n" in self.read(place, self.size))

    def forward(self, place: int, length: int) -> Iterator[Placed]:
        while place < self.size:
            end = min(self.size, place + length)
            data = self.read(place, end)
            found = list(split_lines([data], place, whole=self.is_over and end == self.size))
            yield from self._placed(place, found)
            if found:
                place = found[-1][1]
            elif end == self.size or not data:
                return
            length = min(2 * length, LARGE)  # also for a line that is longer than what was read

    def backward(self, place: int, length: int) -> Iterator[Placed]:
        while place > 0:
            start = max(0, place - length)
            data = self.read(start, place)
            if not data:
                return
            skipped = _line_start(data) if start else 0
            if skipped is None:
                if length < 2 * LONGEST_LINE:
                    length *= 2
                    continue
                skipped = _piece_start(data)
            data, place = data[skipped:], start + skipped
            yield from reversed(self._placed(place, split_lines([data], place)))
            length = min(2 * length, LARGE)

    def _placed(self, place: int, pieces: Iterable[tuple[bytes, int]]) -> list[Placed]:
        texts: list[bytes] = []
        ends: list[int] = []
        for text, end in pieces:
            texts.append(text)
            ends.append(end)
        times = times_of(ends, self.notes.around(ends[0], ends[-1]), self.changed_at) if ends else ()
        return list(zip(times, repeat(self.number), [place, *ends], ends, texts, strict=False))

    def place_at(self, at: float) -> int:
        """Where the lines begin that were written after a time."""
        before, after = self.notes.beside(at)
        if after is None:
            end = self.end()
            return end if self.changed_at <= at or before.size >= end else self.line_before(before.size)
        return self.line_before(size_at(at, before, after))

    def line_before(self, place: int) -> int:
        place = min(place, self.size)
        start = max(0, place - 2 * LONGEST_LINE)
        data = self.read(start, place)
        if (found := data.rfind(b"\n")) != -1:
            return start + found + 1
        return start + _piece_start(data) if start and data else 0

    def unfinished(self, place: int) -> str:
        """What stands after the last whole line."""
        return "" if self.is_over else plain_text(decoded(self.read(place, min(self.size, place + LONGEST_LINE))))


def _line_start(data: bytes) -> int | None:
    """Where the first line begins that is here from its beginning; None when there is none."""
    found = data.find(b"\n", 0, -1)
    return found + 1 if found != -1 else None


def _piece_start(data: bytes) -> int:
    """Where to begin within an endless line: where a progress bar is drawn anew, or else between two characters."""
    found = data.find(b"\r", 0, -2)
    if found != -1:
        return found + 1
    return next((place for place in range(min(4, len(data) - 1)) if data[place] & 0xC0 != 0x80), 0)


def decoded(piece: bytes) -> str:
    return piece.decode("utf-8", "replace").removesuffix("\r")


class Window(NamedTuple):
    """Lines in the order of time, and where they begin and end in each log."""

    lines: list[FoldedLine]
    first: list[int]
    last: list[int]


class MergedLogReader:
    """The logs of one attempt, read as one."""

    def __init__(self, run_folder: Path, voices: Sequence[LogSource], attempt: int, *, is_over: bool) -> None:
        self.attempt = attempt
        self.each = [LogReader(run_folder, one, attempt, number, is_over=is_over) for number, one in enumerate(voices)]
        self._length = LARGE if len(voices) <= 8 else SMALL

    def ends(self) -> list[int]:
        return [reel.end() for reel in self.each]

    def before(self, places: Sequence[int], limit: int, *, fold: bool = False) -> Window:
        """The last lines before a place of each log; with `fold`, the same line of many counts as one."""
        logs = [reel.backward(place, self._length) for reel, place in zip(self.each, places, strict=True) if place]
        lines = heapq.merge(*logs, reverse=True)
        told, reached = (self._folded if fold else self._plain)(lines, limit, -1)
        first = [place if line is None else line[2] for place, line in zip(places, reached, strict=True)]
        return Window(told[::-1], first, list(places))

    def after(self, places: Sequence[int], limit: int, *, fold: bool = False) -> Window:
        """The first lines after a place of each log."""
        logs = [
            reel.forward(place, self._length)
            for reel, place in zip(self.each, places, strict=True)
            if place < reel.size
        ]
        told, reached = (self._folded if fold else self._plain)(heapq.merge(*logs), limit, 1)
        last = [place if line is None else line[3] for place, line in zip(places, reached, strict=True)]
        return Window(told, list(places), last)

    def _plain(self, lines: Iterator[Placed], limit: int, _: int) -> Taken:
        taken = list(islice(lines, limit))
        reached: list[Placed | None] = [None] * len(self.each)
        for line in taken:
            reached[line[1]] = line
        return list(unfolded(map(self._line, taken))), reached

    def _folded(self, lines: Iterator[Placed], limit: int, direction: int) -> Taken:
        """Whole groups only, so that what follows begins in all logs with the same line. Time may run backwards."""
        groups: Groups[int, Placed] = Groups()
        told: list[tuple[Placed, list[int]]] = []
        read: list[list[Placed]] = [[] for _ in self.each]
        most = MOST_READ
        for count, line in enumerate(lines, 1):
            at = line[0] * direction
            while groups.ready(at - WINDOW_S):
                told.append(groups.pop())
            groups.feed(at, line[1], line[4], line)
            read[line[1]].append(line)
            if len(told) >= limit:
                break
            if count >= MOST_READ:
                most = count // 4 * 3  # nobody knows yet who else says the last of them
                break
        if len(told) < limit:
            told += [groups.pop() for _ in range(len(groups))]
        return self._whole(told[:limit], read, most)

    def _whole(self, told: list[tuple[Placed, list[int]]], read: list[list[Placed]], most: int) -> Taken:
        """Groups of up to so many lines in all, and how far each log was taken by them."""
        taken = [0] * len(self.each)
        kept: list[FoldedLine] = []
        for line, numbers in told:
            most -= len(numbers)
            if most < 0 and kept:
                break
            for number in numbers:
                taken[number] += 1
            names = in_order(self.each[number].voice.name for number in numbers)
            kept.append(FoldedLine(self._line(line), names))
        return kept, [lines[count - 1] if count else None for lines, count in zip(read, taken, strict=True)]

    def first_error(self, number: int, size: int, *, or_end: bool = True) -> Excerpt:
        """The first error in the last so many bytes of one log, or else its end, or else nothing. Only lines near it
        are looked at."""
        reel = self.each[number]
        start = max(0, reel.size - size)
        data = reel.read(start, reel.size)
        hits = [data.find(TRACEBACK.encode())]
        if hits == [-1]:
            hits = [hit for word in ERROR_WORDS if (hit := data.find(word)) != -1]
        if not hits and not or_end:
            return Excerpt((), None)
        near = reel.line_before(start + max(0, min(hits, default=len(data)) - NEAR))
        return first_error(map(self._line, reel.forward(near, LARGE)))

    def _line(self, placed: Placed) -> LogLine:
        at, number, first, end, piece = placed
        voice = self.each[number].voice
        return LogLine(at, voice.name, voice.rank, self.attempt, plain_text(decoded(piece)), first, end)
