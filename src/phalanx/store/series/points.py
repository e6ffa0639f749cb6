"""Points as training wrote them: the `*.points` files of an attempt's folder, decoded into plain columns.

A `PointFile` follows one file. It continues where it stopped, skips damaged data and never holds a Python object per
point.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any
from zlib import crc32

from phalanx.spool import CHUNK, HEAD, MARK, MAX_PAYLOAD, MOMENT, NAME_NUMBER, NAMES, NO_STEP, POINTS, VALUE

SUFFIX = ".points"
LONGEST_NAME = 500
LAST_STEP = 2**63 - 1
END_OF_TIME = 250_000_000_000.0  # in the year 9892: later times, and those before 1970, come from a wrong clock
KNOWN_BYTES = 64
SHAPES_KEPT = 256  # number of record lengths whose decoders are cached

Append = Callable[[Any], None]


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
        that any training logs. At damaged bytes it skips to the next complete record. Times have microseconds, as they
        have in Parquet, so that a series reads the same before and after compaction."""
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
                        time = round(time * 1e6) / 1e6 if 0.0 <= time < END_OF_TIME else self._time
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


def point_files(folder: Path) -> list[str]:
    """The names of the point files of an attempt's folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX) and entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
