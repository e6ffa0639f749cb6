"""Points as training wrote them: the `*.points` files of an attempt's folder, decoded into plain columns.

A `PointFile` follows one file and keeps all of it; `FolderSummaries` follows all files of a folder and keeps a few
numbers per metric. Both continue where they stopped, skip damaged data and never hold a Python object per point.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from math import inf, isfinite
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import Any, NamedTuple
from zlib import crc32

from phalanx.spool import CHUNK, HEAD, MARK, MAX_PAYLOAD, MOMENT, NAME_NUMBER, NAMES, NO_STEP, POINTS, VALUE

SUFFIX = ".points"
LONGEST_NAME = 500
LAST_STEP = 2**63 - 1
END_OF_TIME = 250_000_000_000.0  # in the year 9892: later times, and those before 1970, come from a wrong clock
KNOWN_BYTES = 64
SHAPES_KEPT = 256  # number of record lengths whose decoders are cached

Append = Callable[[Any], None]


class Summary(NamedTuple):
    """A metric's summary in lists. Minimum and maximum are over the finite values, None when there are none."""

    last: float
    min: float | None
    max: float | None
    count: int  # type: ignore[assignment] # the usual word, though tuples have a method of that name
    step: int  # of the last point
    at: float  # when the last point was logged


class Columns:
    """Points of one metric in the order of writing. In a file's own columns a step may be NO_STEP."""

    __slots__ = ("steps", "times", "values")

    def __init__(
        self,
        steps: array[int] | None = None,
        times: array[float] | None = None,
        values: array[float] | None = None,
    ) -> None:
        self.steps = array("q") if steps is None else steps
        self.times = array("d") if times is None else times
        self.values = array("d") if values is None else values

    def __len__(self) -> int:
        return len(self.values)

    def cut(self, first: int, last: int) -> Columns:
        return Columns(self.steps[first:last], self.times[first:last], self.values[first:last])

    def extend(self, other: Columns) -> None:
        self.steps.extend(other.steps)
        self.times.extend(other.times)
        self.values.extend(other.values)

    def picked(self, order: Iterable[int]) -> Columns:
        """The points at these positions, in this order."""
        places = array("q", order)
        return Columns(
            array("q", map(self.steps.__getitem__, places)),
            array("d", map(self.times.__getitem__, places)),
            array("d", map(self.values.__getitem__, places)),
        )

    def clear(self) -> None:
        for column in (self.steps, self.times, self.values):
            del column[:]


class PointFile:
    """Follows one file. With `consumed`, that many bytes at its start are read only for metric names: their points are
    already stored elsewhere."""

    def __init__(self, path: str | os.PathLike[str], consumed: int = 0) -> None:
        self.path = path
        self.consumed = consumed
        self._begin()

    def _begin(self) -> None:
        self.metrics: dict[str, Columns] = {}
        self.offset = 0  # everything before it is decoded or damaged
        self.seen_bytes = 0  # length of the file; the rest may still become a record
        self.skipped_bytes = 0
        self._stamp = (-1, -1, -1)  # a file with this stamp has nothing new
        self._before = b""  # the bytes right before the offset: they identify the file
        self._appends = _Appends(self.metrics)
        self._time = 0.0
        self._shapes: dict[int, Callable[..., tuple[Any, ...]]] = {}

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Changes with every change of the file."""
        return self._stamp

    def poll(self) -> int:
        """The number of new points. Raises FileNotFoundError when the file is gone; what was read of it stays."""
        return sum(self.chunks())

    def chunks(self) -> Generator[int, None, None]:
        """The same in steps, for callers that empty the columns in between, or continue later."""
        found = os.stat(self.path)
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self._stamp or (found.st_size <= self.consumed and self.offset == 0):
            return
        with open(self.path, "rb") as stream:
            stream.seek(self.offset - len(self._before))
            if stream.read(len(self._before)) != self._before:
                self._begin()  # another file of that name, of which nothing was read
                self.consumed = 0
                stream.seek(0)
            yield from self._chunks_of(stream.read)
        self._stamp = stamp

    def _chunks_of(self, read: Callable[[int], bytes]) -> Iterator[int]:
        rest = b""
        while True:
            position = self.offset + len(rest)
            known = position < self.consumed
            chunk = read(min(CHUNK, self.consumed - position) if known else CHUNK)
            if not chunk:
                self.seen_bytes = position
                return
            buffer = rest + chunk
            points = self._feed(buffer)
            rest = buffer[self._used :]
            self.offset += self._used
            self._before = (self._before + buffer[max(0, self._used - KNOWN_BYTES) : self._used])[-KNOWN_BYTES:]
            if known:
                self.skipped_bytes = 0
                for columns in self.metrics.values():
                    columns.clear()
            else:
                yield points

    def _feed(self, buffer: bytes) -> int:
        """Decode the complete records of a range of the file. One loop without calls: it runs once for every record
        that any training logs. At damaged bytes it skips to the next complete record."""
        head, checksum, shapes, appends = HEAD.unpack_from, crc32, self._shapes, self._appends
        size, header = len(buffer), HEAD.size
        points = position = 0
        damaged = -1  # where the damaged bytes began
        while True:
            start = position + header
            if start <= size:
                mark, kind, length, claimed = head(buffer, position)
                end = start + length
                if mark == MARK and kind and end <= size and checksum(buffer[start:end], kind) == claimed:
                    if damaged >= 0:
                        self.skipped_bytes += position - damaged
                        damaged = -1
                    position = end
                    if kind == POINTS:
                        shape = shapes.get(length)
                        if shape is None:
                            shape = self._shape(length)
                        fields = shape(buffer, start)
                        step, time = fields[0], fields[1]
                        if not 0.0 <= time < END_OF_TIME:
                            time = self._time
                        for place in range(2, len(fields), 2):
                            append_step, append_time, append_value = appends[fields[place]]
                            append_step(step)
                            append_time(time)
                            append_value(fields[place + 1])
                        self._time = time
                        points += len(fields) // 2 - 1
                    elif kind == NAMES and length >= NAME_NUMBER.size:
                        self._read_name(buffer[start:end])
                    continue
            if damaged < 0:
                damaged = position
            position = buffer.find(MARK, position + 1)
            if position < 0:
                break
        hopeless = max(damaged, size - header - MAX_PAYLOAD)  # earlier bytes can no longer become a record
        self.skipped_bytes += hopeless - damaged
        self._used = hopeless
        return points

    def _shape(self, length: int) -> Callable[..., tuple[Any, ...]]:
        """The decoder for the payload of a point record of that length."""
        values = (length - MOMENT.size) // VALUE.size
        if values < 0:
            return _nothing
        shape = Struct("<qd" + "Id" * values).unpack_from
        if len(self._shapes) < SHAPES_KEPT:
            self._shapes[length] = shape
        return shape

    def _read_name(self, payload: bytes) -> None:
        (number,) = NAME_NUMBER.unpack_from(payload)
        name = payload[NAME_NUMBER.size :].decode("utf-8", "replace")
        self._appends.name(number, name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…")


class _Appends(dict[int, tuple[Append, Append, Append]]):
    """Appends to the columns of the metric that currently has this number."""

    def __init__(self, metrics: dict[str, Columns]) -> None:
        super().__init__()
        self.metrics = metrics

    def name(self, number: int, name: str) -> tuple[Append, Append, Append]:
        columns = self.metrics.setdefault(name, Columns())
        self[number] = appends = (columns.steps.append, columns.times.append, columns.values.append)
        return appends

    def __missing__(self, number: int) -> tuple[Append, Append, Append]:
        """Its name was in a damaged record; its values are intact."""
        return self.name(number, f"unnamed-{number}")


def _nothing(*_: object) -> tuple[Any, ...]:
    """A point record that is too short."""
    return (NO_STEP, -1.0)


def next_step(last: int | None) -> int:
    """The step of a point that was logged without one."""
    return 0 if last is None else min(last + 1, LAST_STEP)


class FolderSummaries:
    """Follows all points written into one folder and keeps only a summary per metric: for lists of active runs. `after`
    are the last steps of earlier attempts, for points without a step."""

    def __init__(self, folder: Path, after: Mapping[str, int] | None = None) -> None:
        self.folder = folder
        self.after = dict(after or {})
        self.summaries: dict[str, Summary] = {}
        self._files: dict[str, PointFile] = {}

    def poll(self, longest_s: float | None = None) -> set[str]:
        """The metrics with new points. After about this many seconds, the rest is left for the next call."""
        deadline = inf if longest_s is None else monotonic() + longest_s
        changed: set[str] = set()
        for name in point_files(self.folder):
            file = self._files.setdefault(name, PointFile(self.folder / name))
            try:
                with closing(file.chunks()) as chunks:
                    for _ in chunks:
                        changed |= self._take(file)
                        if monotonic() >= deadline:
                            return changed
            except FileNotFoundError:
                continue  # its points were compacted meanwhile; they are already counted
        return changed

    def _take(self, file: PointFile) -> set[str]:
        """Add a file's columns to the summaries and empty them."""
        filled = {name: columns for name, columns in file.metrics.items() if columns.values}
        for name, columns in filled.items():
            before = self.summaries.get(name)
            grown = _grown(before, columns, before.step if before else self.after.get(name))
            if before and len(self._files) > 1 and before.at > grown.at:  # another process logged it later
                grown = grown._replace(last=before.last, step=before.step, at=before.at)
            self.summaries[name] = grown
            columns.clear()
        return set(filled)


def _grown(before: Summary | None, columns: Columns, last_step: int | None) -> Summary:
    """The last value has the largest step and, among equal steps, the latest time."""
    values = columns.values
    finite = values if isfinite(sum(values)) else [value for value in values if isfinite(value)]
    lowest, highest = (min(finite), max(finite)) if finite else (None, None)
    place, step = _largest_step(columns.steps, last_step)
    grown = Summary(values[place], lowest, highest, len(values), step, columns.times[place])
    if before is None:
        return grown
    last = before if before.step is not None and before.step > step else grown
    return Summary(
        last.last,
        _either(min, before.min, lowest),
        _either(max, before.max, highest),
        before.count + grown.count,
        last.step,
        last.at,
    )


def _either(choose: Callable[[float, float], float], one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def _largest_step(steps: array[int], before: int | None) -> tuple[int, int]:
    """The position of the largest step in a range, the last of equal ones; missing steps are counted."""
    found, largest, last = 0, None, before
    if NO_STEP not in steps:
        largest = max(steps)
        return len(steps) - 1 - steps[::-1].index(largest), largest
    for place, given in enumerate(steps):
        last = next_step(last) if given == NO_STEP else given
        if largest is None or last >= largest:
            found, largest = place, last
    assert largest is not None, "a stretch has at least one point"
    return found, largest


def point_files(folder: Path) -> list[str]:
    """The names of the point files of an attempt's folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX) and entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
