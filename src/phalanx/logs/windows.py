"""Windows of lines in several long logs: reads only what is near a position, in either direction.

A position is a byte offset in each log, so continuing where a window ended neither misses nor repeats a line, even if
the clocks of the machines differ.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple

from phalanx import run_paths
from phalanx.logs.first_error import Excerpt, first_error
from phalanx.logs.fold import FoldedLine, Groups, unfolded
from phalanx.logs.lines import ERROR_WORDS, LONGEST_LINE, TRACEBACK, WINDOW_S, LogLine, plain_text, split_lines
from phalanx.logs.merge import in_order
from phalanx.logs.replica_logs import LogSource, open_log
from phalanx.logs.time_index import TimeNotes, size_at, times_of

SMALL, LARGE = 1 << 12, 1 << 16  # bytes per read, for many logs and for few
NEAR = 1 << 12  # approximate number of bytes shown before an error
MOST_READ = 40_000  # lines of a window before folding

LocatedLine = tuple[float, int, int, int, bytes]  # time, number of the log, start, end, text
Taken = tuple[list[FoldedLine], list[LocatedLine | None]]  # lines, and the last one of each log among them


class LogReader:
    """Reads one log from any position, forwards or backwards. Of a growing log, only finished lines."""

    def __init__(self, run_folder: Path, source: LogSource, attempt: int, number: int, *, is_over: bool) -> None:
        self.folder = run_folder / run_paths.attempt_folder(source.name, attempt)
        self.source = source
        self.attempt = attempt
        self.number = number
        self.size, self.changed_at, self.is_there, self.is_over = 0, 0.0, False, is_over
        with suppress(OSError):
            # In this order: nothing comes after its end
            self.is_over = is_over or (self.folder / run_paths.END).exists()
            facts = os.stat(self.folder / run_paths.LOG, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                self.size, self.changed_at, self.is_there = facts.st_size, facts.st_mtime, True
        self.notes = TimeNotes(self.folder / run_paths.SPOOL)

    def read(self, first: int, end: int) -> bytes:
        stream = open_log(self.folder) if first < end else None
        if stream is None:
            return b""
        with stream:
            return os.pread(stream.fileno(), end - first, first)

    def end(self) -> int:
        """The position where the last finished line ends."""
        if self.is_over or not self.size:
            return self.size
        start = max(0, self.size - LONGEST_LINE)
        tail = self.read(start, self.size)
        whole = tail.rfind(b"\n")
        if whole == -1 and start:  # a very long line, such as a progress bar: its last state
            whole = tail.rfind(b"\r", 0, -1)
        return start + whole + 1 if whole >= 0 or not start else self.size

    def has_more(self, offset: int) -> bool:
        """Whether `forward` would return a line."""
        left = self.size - offset
        return left > 0 and (self.is_over or left > LONGEST_LINE or b"\n" in self.read(offset, self.size))

    def forward(self, offset: int, length: int) -> Iterator[LocatedLine]:
        while offset < self.size:
            end = min(self.size, offset + length)
            data = self.read(offset, end)
            found = list(split_lines([data], offset, whole=self.is_over and end == self.size))
            yield from self._located(offset, found)
            if found:
                offset = found[-1][1]
            elif end == self.size or not data:
                return
            length = min(2 * length, LARGE)  # also helps with a line longer than what was read

    def backward(self, offset: int, length: int) -> Iterator[LocatedLine]:
        while offset > 0:
            start = max(0, offset - length)
            data = self.read(start, offset)
            if not data:
                return
            skipped = _line_start(data) if start else 0
            if skipped is None:
                if length < 2 * LONGEST_LINE:
                    length *= 2
                    continue
                skipped = _piece_start(data)
            data, offset = data[skipped:], start + skipped
            yield from reversed(self._located(offset, split_lines([data], offset)))
            length = min(2 * length, LARGE)

    def _located(self, offset: int, pieces: Iterable[tuple[bytes, int]]) -> list[LocatedLine]:
        texts: list[bytes] = []
        ends: list[int] = []
        for text, end in pieces:
            texts.append(text)
            ends.append(end)
        times = times_of(ends, self.notes.around(ends[0], ends[-1]), self.changed_at) if ends else ()
        return list(zip(times, repeat(self.number), [offset, *ends], ends, texts, strict=False))

    def offset_at(self, at: float) -> int:
        """The position where the lines written after a time start."""
        before, after = self.notes.beside(at)
        if after is None:
            end = self.end()
            return end if self.changed_at <= at or before.size >= end else self.line_before(before.size)
        return self.line_before(size_at(at, before, after))

    def line_before(self, offset: int) -> int:
        offset = min(offset, self.size)
        start = max(0, offset - 2 * LONGEST_LINE)
        data = self.read(start, offset)
        if (found := data.rfind(b"\n")) != -1:
            return start + found + 1
        return start + _piece_start(data) if start and data else 0

    def unfinished(self, offset: int) -> str:
        """The text after the last finished line."""
        return "" if self.is_over else plain_text(decoded(self.read(offset, min(self.size, offset + LONGEST_LINE))))


def _line_start(data: bytes) -> int | None:
    """Where the first complete line starts; None if there is none."""
    found = data.find(b"\n", 0, -1)
    return found + 1 if found != -1 else None


def _piece_start(data: bytes) -> int:
    """Where to start within a very long line: where a progress bar is redrawn, else between two characters."""
    found = data.find(b"\r", 0, -2)
    if found != -1:
        return found + 1
    return next((offset for offset in range(min(4, len(data) - 1)) if data[offset] & 0xC0 != 0x80), 0)


def decoded(piece: bytes) -> str:
    return piece.decode("utf-8", "replace").removesuffix("\r")


class Window(NamedTuple):
    """Lines in order of time, and where they start and end in each log."""

    lines: list[FoldedLine]
    first: list[int]
    last: list[int]


class MergedLogReader:
    """Reads the logs of one attempt as one, merged by time."""

    def __init__(
        self,
        run_folder: Path,
        sources: Sequence[LogSource],
        attempt: int,
        *,
        is_over: bool,
        text: Callable[[str], str] = plain_text,
    ) -> None:
        """`text` makes a line harmless to show."""
        self.attempt = attempt
        self._text = text
        self.each = [LogReader(run_folder, one, attempt, number, is_over=is_over) for number, one in enumerate(sources)]
        self._length = LARGE if len(sources) <= 8 else SMALL

    def ends(self) -> list[int]:
        return [log.end() for log in self.each]

    def before(self, offsets: Sequence[int], limit: int, *, fold: bool = False) -> Window:
        """The last lines before a position in each log; with `fold`, identical lines count once."""
        logs = [log.backward(offset, self._length) for log, offset in zip(self.each, offsets, strict=True) if offset]
        lines = heapq.merge(*logs, reverse=True)
        done, reached = (self._folded if fold else self._plain)(lines, limit, -1)
        first = [offset if line is None else line[2] for offset, line in zip(offsets, reached, strict=True)]
        return Window(done[::-1], first, list(offsets))

    def after(self, offsets: Sequence[int], limit: int, *, fold: bool = False) -> Window:
        """The first lines after a position in each log."""
        logs = [
            log.forward(offset, self._length)
            for log, offset in zip(self.each, offsets, strict=True)
            if offset < log.size
        ]
        done, reached = (self._folded if fold else self._plain)(heapq.merge(*logs), limit, 1)
        last = [offset if line is None else line[3] for offset, line in zip(offsets, reached, strict=True)]
        return Window(done, list(offsets), last)

    def _plain(self, lines: Iterator[LocatedLine], limit: int, _: int) -> Taken:
        taken = list(islice(lines, limit))
        reached: list[LocatedLine | None] = [None] * len(self.each)
        for line in taken:
            reached[line[1]] = line
        return list(unfolded(map(self._line, taken))), reached

    def _folded(self, lines: Iterator[LocatedLine], limit: int, direction: int) -> Taken:
        """Return whole groups only, so that the next window starts at the same line in all logs. `direction` is -1 when
        reading backwards."""
        groups: Groups[int, LocatedLine] = Groups()
        done: list[tuple[LocatedLine, list[int]]] = []
        read: list[list[LocatedLine]] = [[] for _ in self.each]
        most = MOST_READ
        for count, line in enumerate(lines, 1):
            at = line[0] * direction
            while groups.ready(at - WINDOW_S):
                done.append(groups.pop())
            groups.feed(at, line[1], line[4], line)
            read[line[1]].append(line)
            if len(done) >= limit:
                break
            if count >= MOST_READ:
                most = count // 4 * 3  # the last groups may be incomplete
                break
        if len(done) < limit:
            done += [groups.pop() for _ in range(len(groups))]
        return self._whole(done[:limit], read, most)

    def _whole(self, done: list[tuple[LocatedLine, list[int]]], read: list[list[LocatedLine]], most: int) -> Taken:
        """The groups of up to `most` lines in total, and the last line of each log in them."""
        taken = [0] * len(self.each)
        kept: list[FoldedLine] = []
        for line, numbers in done:
            most -= len(numbers)
            if most < 0 and kept:
                break
            for number in numbers:
                taken[number] += 1
            names = in_order(self.each[number].source.name for number in numbers)
            kept.append(FoldedLine(self._line(line), names))
        return kept, [lines[count - 1] if count else None for lines, count in zip(read, taken, strict=True)]

    def first_error(self, number: int, size: int, *, or_end: bool = True) -> Excerpt:
        """The first error in the last `size` bytes of one log, else its last lines if `or_end`. Parses only lines near
        it."""
        log = self.each[number]
        start = max(0, log.size - size)
        data = log.read(start, log.size)
        hits = [data.find(TRACEBACK.encode())]
        if hits == [-1]:
            hits = [hit for word in ERROR_WORDS if (hit := data.find(word)) != -1]
        if not hits and not or_end:
            return Excerpt((), None)
        near = log.line_before(start + max(0, min(hits, default=len(data)) - NEAR))
        return first_error(map(self._line, log.forward(near, LARGE)))

    def _line(self, located: LocatedLine) -> LogLine:
        at, number, first, end, piece = located
        source = self.each[number].source
        return LogLine(at, source.name, source.rank, self.attempt, self._text(decoded(piece)), first, end)
