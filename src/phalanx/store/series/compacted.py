"""Compacted points of an attempt: `<run>/series/attempt-<n>.parquet`, and a `.leaves` file next to it.

The Parquet file holds every point for all tools: pandas, Polars and DuckDB open it. The leaves are our own format:

magic, length of the directory, its checksum
directory      JSON: names of metrics, replicas, which files were consumed, how many bytes of them were damaged
series         a table with one row per (metric, replica): the position of its rows, and one leaf for all of it
leaves         for each series of more than one leaf: its leaves, column by column

All tables are columns of 8-byte little-endian numbers. The leaves are written after the Parquet file, so a reader that
sees them sees both; a further pair `attempt-<n>-<k>` holds data that was written after the first was made.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from phalanx import run_paths
from phalanx.errors import CallError
from phalanx.store.series.leaves import LEAF_BYTES, LEAF_ROWS, Leaf, Leaves, leaf_bounds, little_endian
from phalanx.store.series.parquet import GROUP_ROWS, read_group
from phalanx.store.series.points import Columns

SUFFIX = ".leaves"
HEAD = struct.Struct("<8sQI4x")
MAGIC = b"phxleaf1"
TAIL_BYTES = 4096  # bytes at the end of the Parquet file that identify it
PLACE_COLUMNS = 5  # table of series: metric, replica, first row, first leaf, checksum of its leaves
LEAVES_KEPT = 500_000  # about 50 MB
GROUPS_KEPT = 8  # about 3 MB each


class ConsumedFile(NamedTuple):
    """A compacted point file: this many bytes of it, with this checksum."""

    read: int
    checksum: int


class ReplicaKey(NamedTuple):
    name: str
    rank: int | None


class SeriesOffset(NamedTuple):
    """The position of a series."""

    metric: int
    replica: int
    first_row: int
    first_leaf: int
    checksum: int


def parts_of(run_folder: Path) -> dict[int, dict[int, Path]]:
    """The leaves of each attempt, by part number."""
    found: dict[int, dict[int, Path]] = {}
    try:
        names = os.listdir(run_folder / run_paths.SERIES)
    except (FileNotFoundError, NotADirectoryError):
        return found
    for name in names:
        numbers = run_paths.series_part_numbers(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
        if numbers is not None:
            attempt, part = numbers
            found.setdefault(attempt, {})[part] = run_folder / run_paths.SERIES / name
    return found


def checksum_of(path: Path, first: int, last: int) -> int | None:
    """The checksum of a range of a file; None when the file is shorter or missing."""
    checksum = 0
    try:
        with open(path, "rb") as stream:
            stream.seek(first)
            while first < last:
                data = stream.read(min(1 << 20, last - first))
                if not data:
                    return None
                checksum = crc32(data, checksum)
                first += len(data)
    except FileNotFoundError:
        return None
    return checksum


def encode(directory: Mapping[str, Any], places: Sequence[SeriesOffset], totals: Leaves) -> bytes:
    """A leaves file up to the start of the leaves themselves."""
    columns = [array("q", column) for column in zip(*places, strict=True)]
    series = b"".join(map(little_endian, columns)) + totals.encode()
    described = {**directory, "series": len(places), "series_checksum": crc32(series)}
    text = json.dumps(described, separators=(",", ":")).encode()
    return HEAD.pack(MAGIC, len(text), crc32(text)) + text + series


class CompactedPart:
    """One opened pair of files. Only the directory and the table of series are read eagerly."""

    def __init__(self, path: Path, directory: Mapping[str, Any], series: bytes, leaves_at: int) -> None:
        self.path = path
        self.parquet = path.with_suffix(".parquet")
        self.attempt = int(directory["attempt"])
        self.metrics: list[str] = directory["metrics"]
        self.replicas = [ReplicaKey(name, rank) for name, rank in directory["replicas"]]
        self.consumed = {name: ConsumedFile(*known) for name, known in directory["consumed"].items()}
        self.rows = int(directory["rows"])
        self.skipped_bytes = int(directory["skipped_bytes"])
        self._size, self._tail_checksum = (int(directory["parquet"][key]) for key in ("size", "tail_checksum"))
        length = len(series) // (8 * PLACE_COLUMNS + LEAF_BYTES) * 8
        self.places = [_column(series[place * length : (place + 1) * length]) for place in range(PLACE_COLUMNS)]
        self.totals = Leaves.decode(series[PLACE_COLUMNS * length :])
        self._leaves_at = leaves_at
        self._numbers = {name: number for number, name in enumerate(self.metrics)}
        self._leaves: OrderedDict[int, Leaves] = OrderedDict()
        self._leaves_held = 0
        self._groups: OrderedDict[int, Columns] = OrderedDict()

    @classmethod
    def open(cls, path: Path) -> CompactedPart | None:
        """None when its directory is damaged or missing."""
        try:
            with open(path, "rb") as stream:
                magic, length, checksum = HEAD.unpack(stream.read(HEAD.size))
                text = stream.read(length) if magic == MAGIC else b""
                if crc32(text) != checksum:
                    return None
                directory = json.loads(text)
                series = stream.read(directory["series"] * (8 * PLACE_COLUMNS + LEAF_BYTES))
                leaves_at = stream.tell()
            if crc32(series) != directory["series_checksum"]:
                return None
            return cls(path, directory, series, leaves_at)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error):
            return None

    @property
    def stamp(self) -> tuple[str, int, int, int]:
        """Differs for every part."""
        return self.path.name, self.rows, self._size, self._tail_checksum

    def held_bytes(self) -> int:
        """Approximate memory use in bytes."""
        rows = sum(map(len, self._groups.values()))
        return 24 * rows + LEAF_BYTES * (self._leaves_held + len(self.totals)) + 8 * PLACE_COLUMNS * len(self.totals)

    def is_complete(self) -> bool:
        """Whether the Parquet file next to it is the one that it was made with."""
        try:
            if self.parquet.stat().st_size != self._size:
                return False
            return checksum_of(self.parquet, max(0, self._size - TAIL_BYTES), self._size) == self._tail_checksum
        except OSError:
            return False

    def series(self) -> Iterator[tuple[str, str]]:
        """Metric and replica of each series."""
        for metric, replica in zip(self.places[0], self.places[1], strict=True):
            yield self.metrics[metric], self.replicas[replica].name

    def strand(self, metric: str, replica: str) -> CompactedStrand | None:
        number = self._numbers.get(metric)
        if number is None:
            return None
        first, last = bisect_left(self.places[0], number), bisect_right(self.places[0], number)
        for place in range(first, last):  # they are sorted by metric
            if self.replicas[self.places[1][place]].name == replica:
                return CompactedStrand(self, place)
        return None

    def leaves(self, series: int) -> Leaves:
        found = self._leaves.get(series)
        if found is None:
            found = self._leaves[series] = self._read_leaves(series)
            self._leaves_held += len(found)
            while self._leaves_held > LEAVES_KEPT and len(self._leaves) > 1:
                self._leaves_held -= len(self._leaves.popitem(last=False)[1])
        else:
            self._leaves.move_to_end(series)
        return found

    def _read_leaves(self, series: int) -> Leaves:
        total = self.totals[series]
        count = -(-total.rows // LEAF_ROWS)
        leaves = Leaves()
        if count == 1:
            leaves.append(total)
            return leaves
        place = self.place(series)
        with suppress(OSError), open(self.path, "rb") as stream:
            stream.seek(self._leaves_at + place.first_leaf * LEAF_BYTES)
            data = stream.read(count * LEAF_BYTES)
            if crc32(data) == place.checksum:
                return Leaves.decode(data)
        leaves.add(self.points(place.first_row, place.first_row + total.rows), leaf_bounds(total.rows))
        return leaves

    def place(self, series: int) -> SeriesOffset:
        return SeriesOffset._make(column[series] for column in self.places)

    def points(self, first: int, last: int) -> Columns:
        """Rows of the Parquet file. Raises CallError when that file or pyarrow is missing, or it cannot be read."""
        found = Columns()
        for group in range(first // GROUP_ROWS, -(-last // GROUP_ROWS)):
            begin = group * GROUP_ROWS
            found.extend(self._group(group).cut(max(first - begin, 0), last - begin))
        return found

    def _group(self, number: int) -> Columns:
        found = self._groups.get(number)
        if found is None:
            if not self.is_complete():
                raise CallError(f"{self.parquet} is missing or damaged: copy it again from where the run came from")
            found = self._groups[number] = read_group(self.parquet, number)
            while len(self._groups) > GROUPS_KEPT:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(number)
        return found


class CompactedStrand:
    """One series of a part."""

    def __init__(self, part: CompactedPart, series: int) -> None:
        self.attempt = part.attempt
        self.rows: int = part.totals.columns[0][series]
        self._part = part
        self._series = series

    def total(self) -> Leaf:
        return self._part.totals[self._series]

    def leaves(self) -> Leaves:
        return self._part.leaves(self._series)

    def points(self, first: int, last: int) -> Columns:
        begin = self._part.places[2][self._series]
        return self._part.points(begin + first, begin + last)


def _column(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
