"""The spool: append-only files of checksummed records, the only thing that crosses from a compute node to us.

A record is a 12-byte head (mark, kind, length, checksum) and its payload. One process writes a file and any number
follow it. Whatever a crash leaves behind is recognised: an unfinished record at the end is waited for, one with other
records after it is skipped and counted. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MARK = b"\xa7P"
JSON = 1  # any value
NAMES = 2  # gives a metric's name a number within its file: the number, then the name
POINTS = 3  # values logged together: their step and time, then for each the number of its name and the value
NO_STEP = -(2**63)  # none was given: readers count on
NAME_NUMBER = struct.Struct("<I")
MOMENT = struct.Struct("<qd")
VALUE = struct.Struct("<Id")
HEAD = struct.Struct("<2sBxII")
MAX_PAYLOAD = 16 << 20
CHUNK = 1 << 20


class Record(NamedTuple):
    kind: int
    payload: bytes

    def data(self) -> Any:
        """The content of a JSON record."""
        return json.loads(self.payload)


def frame(kind: int, payload: bytes) -> bytes:
    """A record as it stands in the file."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError("a record of more than 16 MiB")
    return HEAD.pack(MARK, kind, len(payload), checksum(kind, payload)) + payload


def checksum(kind: int, payload: bytes) -> int:
    return zlib.crc32(payload, kind) & 0xFFFFFFFF


class Writer:
    """Appends records, each by one `write`, so that a killed writer leaves whole records and at most one torn one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, kind: int, payload: bytes) -> None:
        """Raises OSError when the disk does not take the whole record."""
        data = frame(kind, payload)
        if os.write(self.descriptor, data) != len(data):
            raise OSError("the disk took only a part of a record")

    def append_json(self, data: Any) -> None:
        self.append(JSON, json.dumps(data, separators=(",", ":")).encode())

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


class PointWriter(Writer):
    """Appends points. The fast way of training code is `phalanx.tracking`'s own; this one is for all others."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.numbers: dict[str, int] = {}

    def add(self, step: int | None, time: float, values: Mapping[str, float]) -> None:
        """Raises OSError when the disk does not take all of it. Names are given numbers anew by every writer."""
        payload = [MOMENT.pack(NO_STEP if step is None else step, time)]
        for name, value in values.items():
            number = self.numbers.get(name)
            if number is None:
                number = len(self.numbers)
                self.append(NAMES, name_payload(number, name))
                self.numbers[name] = number
            payload.append(VALUE.pack(number, value))
        self.append(POINTS, b"".join(payload))


def name_payload(number: int, name: str) -> bytes:
    return NAME_NUMBER.pack(number) + name.encode("utf-8", "replace")


class Reader:
    """Follows one file. `poll` gives the records that were finished since the last call."""

    def __init__(self, path: str | os.PathLike[str], offset: int = 0) -> None:
        self.path = path
        self.offset = offset  # everything before it has been read
        self.skipped_bytes = 0

    def poll(self) -> Iterator[Record]:
        try:
            stream = open(self.path, "rb")  # noqa: SIM115 - closed below, by `with`
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self.offset)
            buffer = b""
            while True:
                chunk = stream.read(CHUNK)
                buffer += chunk
                records, used, skipped = split(buffer)
                self.offset += used
                self.skipped_bytes += skipped
                buffer = buffer[used:]
                yield from records
                if not chunk:
                    return


def split(buffer: bytes) -> tuple[list[Record], int, int]:
    """The whole records of a stretch of a file; how many bytes they took, with the damage between them; and how many
    of those were damage. What follows the last whole record may still be completed.
    """
    records: list[Record] = []
    position = damage = 0
    while True:
        found = _record_at(buffer, position)
        if found is None:
            start = _next_whole(buffer, position)
            if start is None:
                return records, position, damage
            damage += start - position
            position = start
        else:
            record, position = found
            records.append(record)


def _record_at(buffer: bytes, position: int) -> tuple[Record, int] | None:
    """The record that stands there and where it ends; None when it is torn or damaged."""
    if position + HEAD.size > len(buffer):
        return None
    mark, kind, length, claimed = HEAD.unpack_from(buffer, position)
    end = position + HEAD.size + length
    if mark != MARK or not kind or length > MAX_PAYLOAD or end > len(buffer):  # zeros are what a lost page reads as
        return None
    payload = buffer[position + HEAD.size : end]
    return (Record(kind, payload), end) if checksum(kind, payload) == claimed else None


def _next_whole(buffer: bytes, position: int) -> int | None:
    """Where the next record stands that is whole, after something that is not."""
    start = buffer.find(MARK, position + 1)
    while start != -1:
        if _record_at(buffer, start) is not None:
            return start
        start = buffer.find(MARK, start + 1)
    return None


def read(path: str | os.PathLike[str]) -> list[Record]:
    """All whole records of a file; none when there is no such file."""
    return list(Reader(path).poll())
