"""The logs of a run's replicas: whose they are, and their lines with the times that agents noted."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from phalanx import run_paths
from phalanx.logs.lines import LONGEST_LINE, LogLine, split_lines
from phalanx.logs.time_index import TimeNotes, times_of
from phalanx.stored_plan import PlanDamaged, read_plan

CHUNK = 1 << 18
BATCH = 1000  # lines whose times are looked up at once
UNNOTED_S = 1.0  # after this time, no agent will note the time of a line any more
STRANGE_S = 5.0  # a time this far in the future comes from a clock that was reset since
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogSource(NamedTuple):
    """A replica that may have a log."""

    name: str
    role: str
    rank: int | None


def log_sources(run_folder: Path) -> list[LogSource]:
    """The replicas that run a command, by rank; if the plan is not readable, those that have a folder."""
    try:
        return [LogSource(one.name, one.role, one.rank) for one in read_plan(run_folder).with_command]
    except (OSError, PlanDamaged):
        base = run_folder / run_paths.REPLICAS
        found = sorted(path.name for path in base.iterdir()) if base.is_dir() else []
        return [LogSource(name, name.rpartition("-")[0], None) for name in found]


def open_log(folder: Path) -> BinaryIO | None:
    """Open the log of a replica's attempt; None if it is missing or not a regular file."""
    try:
        descriptor = os.open(folder / run_paths.LOG, _FLAGS)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


class ReplicaLog:
    """The log of one replica in one attempt, read in chunks."""

    def __init__(self, run_folder: Path, source: LogSource, attempt: int, tail: int | None = None) -> None:
        self.folder = run_folder / run_paths.attempt_folder(source.name, attempt)
        self.source = source
        self.attempt = attempt
        self.offset = 0 if tail is None else tail_start(self.folder, tail)
        self.last_at = float("-inf")
        self.notes = TimeNotes(self.folder / run_paths.SPOOL)

    def lines(self, until: float | None = None) -> Iterator[LogLine]:
        """The new lines since the last call. With `until`, only finished lines written before that time, because older
        lines of other replicas may still arrive."""
        stream = open_log(self.folder)
        if stream is None:
            return
        with stream:
            facts = os.fstat(stream.fileno())
            stream.seek(self.offset)
            chunks = _chunks(stream, facts.st_size - self.offset)
            for piece, end, noted in self._timed(split_lines(chunks, self.offset, whole=until is None)):
                patience_s = UNNOTED_S if noted == math.inf else 0.0
                at = max(self.last_at, facts.st_mtime if noted == math.inf else noted)  # a clock may be set back
                if until is not None and until - patience_s < at < until + STRANGE_S:
                    return
                first, self.offset, self.last_at = self.offset, end, at
                text = piece.decode("utf-8", "replace").removesuffix("\r")
                yield LogLine(at, self.source.name, self.source.rank, self.attempt, text, first, end)

    def _timed(self, pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int, float]]:
        """Lines, where they end and when they were written: infinity where no note covers them yet."""
        while batch := list(islice(pieces, BATCH)):
            ends = [end for _, end in batch]
            times = times_of(ends, self.notes.around(ends[0], ends[-1]), math.inf)
            yield from ((piece, end, at) for (piece, end), at in zip(batch, times, strict=True))


def _chunks(stream: BinaryIO, count: int) -> Iterator[bytes]:
    """Read up to `count` bytes, so that reading ends even if the log grows faster than it is printed."""
    while count > 0 and (data := stream.read(min(CHUNK, count))):
        count -= len(data)
        yield data


def tail_start(folder: Path, lines: int) -> int:
    """The position where the last `lines` lines start, searched from the end; a long line counts by its pieces."""
    stream = open_log(folder)
    if stream is None:
        return 0
    with stream:
        position = stream.seek(0, os.SEEK_END)
        stop = max(0, position - (lines + 1) * LONGEST_LINE)
        left = lines + 1  # stop at the newline that ends the line before them
        size = position
        while position > stop:
            start = max(stop, position - CHUNK)
            stream.seek(start)
            block = stream.read(position - start)
            if position == size and not block.endswith(b"\n"):
                left -= 1  # an unfinished line counts too
            while (found := block.rfind(b"\n")) != -1:
                left -= 1
                if left <= 0:
                    return start + found + 1
                block = block[:found]
            position = start
        return stop
