"""The spool: append-only files of checksummed records, through which compute nodes report to the home.

A record is a 12-byte head (mark, kind, length, checksum) and its payload. One process writes a file and any number read
it. Readers survive crashes of the writer: they wait for an unfinished record at the end, and skip and count a damaged
record that others follow. Standard library only, Python 3.8+.
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
NAMES = 2  # assigns a number within the file to a metric's name: the number, then the name
POINTS = 3  # values logged together: step and time, then for each value the number of its name and the value
NO_STEP = -(2**63)  # no step was given: readers count up
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
    """A record as bytes of the file."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError("a record of more than 16 MiB")
    return HEAD.pack(MARK, kind, len(payload), checksum(kind, payload)) + payload


def checksum(kind: int, payload: bytes) -> int:
    return zlib.crc32(payload, kind) & 0xFFFFFFFF


class Writer:
    """Appends records, each with one `write`, so that a killed writer leaves at most one incomplete record."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, kind: int, payload: bytes) -> None:
        """Raises OSError if the whole record cannot be written."""
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
    """Appends points. Training code uses the faster writer of `phalanx.tracking`; this one is for all others."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.numbers: dict[str, int] = {}

    def add(self, step: int | None, time: float, values: Mapping[str, float]) -> None:
        """Raises OSError if the points cannot be written completely. Every writer numbers the names anew."""
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
    """Follows one file. `poll` returns the records completed since the last call."""

    def __init__(self, path: str | os.PathLike[str], offset: int = 0) -> None:
        self.path = path
        self.offset = offset  # everything before it was read
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
    """The whole records in a part of a file; the bytes they take, with damage between them; and the bytes of damage.
    The data after the last whole record may still be completed.
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
    """The record at a position and its end; None if it is incomplete or damaged."""
    if position + HEAD.size > len(buffer):
        return None
    mark, kind, length, claimed = HEAD.unpack_from(buffer, position)
    end = position + HEAD.size + length
    if mark != MARK or not kind or length > MAX_PAYLOAD or end > len(buffer):  # a lost page reads as zeros
        return None
    payload = buffer[position + HEAD.size : end]
    return (Record(kind, payload), end) if checksum(kind, payload) == claimed else None


def _next_whole(buffer: bytes, position: int) -> int | None:
    """The position of the next whole record after a damaged one."""
    start = buffer.find(MARK, position + 1)
    while start != -1:
        if _record_at(buffer, start) is not None:
            return start
        start = buffer.find(MARK, start + 1)
    return None


def read(path: str | os.PathLike[str]) -> list[Record]:
    """All whole records of a file; none if the file does not exist."""
    return list(Reader(path).poll())
