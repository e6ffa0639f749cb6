"""Maps positions in a log to times and back, by the notes of its agent in the spool.

A note is the size of a log at a time. Notes are found by bisection: only those near the target are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from phalanx.logs.lines import LOOK_S

BLOCK = 1024
LONGEST_NOTE = 80
_NOTE = re.compile(rb'"at":([0-9]{1,12}(?:\.[0-9]{1,9})?),"log":([0-9]{1,18})[,}]')


class TimeNote(NamedTuple):
    at: float
    size: int


BEGINNING = TimeNote(float("-inf"), 0)


class TimeNotes:
    """The notes of one log. Damaged parts of the spool are skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def around(self, first: int, last: int) -> list[TimeNote]:
        """The notes from the last one before position `first` to the first that covers position `last`, if any."""
        return self._between(lambda note: note.size < first, lambda note: note.size >= last)

    def beside(self, at: float) -> tuple[TimeNote, TimeNote | None]:
        """The last note up to a time, and the next one."""
        found = self._between(lambda note: note.at <= at, lambda note: note.at > at)
        later = found[-1] if found and found[-1].at > at else None
        earlier = [note for note in found if note.at <= at]
        return (earlier[-1] if earlier else BEGINNING), later

    def _between(self, is_before: Callable[[TimeNote], bool], is_enough: Callable[[TimeNote], bool]) -> list[TimeNote]:
        found: list[TimeNote] = []
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return found
        try:
            for note in _from(descriptor, _start(descriptor, is_before)):
                if is_before(note):
                    found = [note]  # only the last one before matters
                else:
                    found.append(note)
                    if is_enough(note):
                        break
        except OSError:  # not a file, or the disk failed: the times are unknown
            return []
        finally:
            os.close(descriptor)
        return found


def _start(descriptor: int, is_before: Callable[[TimeNote], bool]) -> int:
    """A position near the last note before the target, which is usually near the end."""
    high = os.fstat(descriptor).st_size
    low, back = 0, BLOCK
    while back < high:
        offset = high - back
        note = next(_from(descriptor, offset), None)
        if note is not None and is_before(note):
            low = offset
            break
        back *= 4
    high -= back // 4
    while high - low > 4 * BLOCK:
        middle = (low + high) // 2
        note = next(_from(descriptor, middle), None)
        if note is not None and is_before(note):
            low = middle
        else:
            high = middle
    return low


def _from(descriptor: int, offset: int) -> Iterator[TimeNote]:
    """The notes from a position of the spool on."""
    length = BLOCK
    while data := os.pread(descriptor, length, offset):
        end = 0
        for match in _NOTE.finditer(data):
            end = match.end()
            yield TimeNote(float(match[1]), int(match[2]))
        if len(data) < length:
            return
        offset += max(end, len(data) - LONGEST_NOTE)  # a note may be cut in two
        length = min(4 * length, 1 << 18)


def times_of(ends: Sequence[int], notes: Sequence[TimeNote], unnoted: float) -> list[float]:
    """The times when a log reached increasing sizes; `unnoted` for sizes that no note covers yet. The times never
    decrease, even if the clock was set back."""
    found = []
    place, last = -1, float("-inf")
    low, high, since, slope = 0, -1, unnoted, 0.0  # of the note that covers the size
    for end in ends:
        if end > high:
            while high < end and place + 1 < len(notes):
                place, low, high = place + 1, max(high, 0), notes[place + 1].size
            if high >= end:
                earlier = notes[place - 1].at if place else float("-inf")
                since = max(earlier, notes[place].at - LOOK_S)
                slope = (notes[place].at - since) / (high - low) if high > low else 0.0
            else:
                low, high, since, slope = end, 1 << 62, unnoted, 0.0
        at = since + (end - low) * slope
        last = max(last, at)
        found.append(last)
    return found


def size_at(at: float, before: TimeNote, after: TimeNote) -> int:
    """The size of a log at a time between two notes."""
    since = max(before.at, after.at - LOOK_S)
    if at <= since:
        return before.size
    return before.size + int((after.size - before.size) * min(1.0, (at - since) / (after.at - since)))
