"""Cursors: positions in the logs of a run, as text for clients of the API."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from phalanx.errors import CallError
from phalanx.logs.lines import LogLine
from phalanx.logs.windows import MergedLogReader

MOST_LOGS = 1024
LONGEST = 15_000  # characters: those of all logs, packed and in base64
_CURSOR = re.compile(r"(\d{1,9})~(\d{1,18})~(\d{1,18})~(\d{1,9})~([^~]{0,200})(?:~([0-9a-f]{8})~([\w-]*))?\Z", re.ASCII)


class Cursor(NamedTuple):
    """A line, and optionally the position in each log. Without positions, the line's time is searched in the other
    logs."""

    attempt: int
    at_us: int
    first: int
    end: int
    replica: str
    names: str = ""  # checksum of the names of the logs of `offsets`
    offsets: tuple[int, ...] = ()

    def text(self) -> str:
        line = f"{self.attempt}~{self.at_us}~{self.first}~{self.end - self.first}~{self.replica}"
        return f"{line}~{self.names}~{_packed(self.offsets)}" if self.offsets else line


def of_line(line: LogLine) -> Cursor:
    return Cursor(line.attempt, max(0, int(line.at * 1e6)), line.first, line.end, line.replica)


def of_offsets(logs: MergedLogReader, offsets: Sequence[int], line: LogLine | None) -> Cursor:
    """The cursor of positions in all logs; `line` is next to them."""
    near = of_line(line) if line is not None else Cursor(logs.attempt, 0, 0, 0, "")
    return near._replace(names=_names(logs), offsets=tuple(offsets))


def read(text: str) -> Cursor:
    """Raises CallError."""
    match = _CURSOR.match(text) if len(text) <= LONGEST else None
    if match is None:
        raise CallError("invalid cursor: copy one unchanged from an earlier response")
    attempt, at_us, first, length, replica, names, packed = match.groups()
    offsets = _unpacked(packed) if names else ()
    return Cursor(int(attempt), int(at_us), int(first), int(first) + int(length), replica, names or "", offsets)


def offsets_in(logs: MergedLogReader, cursor: Cursor, *, after: bool) -> list[int]:
    """The position in each log, right after or before the cursor's line."""
    if cursor.names == _names(logs) and len(cursor.offsets) == len(logs.each):
        return [min(offset, log.size) for offset, log in zip(cursor.offsets, logs.each, strict=True)]
    at = (cursor.at_us + 1) / 1e6
    return [
        min(cursor.end if after else cursor.first, log.size) if log.source.name == cursor.replica else log.offset_at(at)
        for log in logs.each
    ]


def _names(logs: MergedLogReader) -> str:
    return f"{zlib.crc32(' '.join(log.source.name for log in logs.each).encode()):08x}"


def _packed(offsets: Sequence[int]) -> str:
    """Varints, then compressed: logs of replicas have similar lengths, so this is short."""
    data = bytearray()
    for offset in offsets:
        rest = offset
        while rest > 0x7F:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
    return base64.urlsafe_b64encode(zlib.compress(bytes(data))).decode().rstrip("=")


def _unpacked(text: str) -> tuple[int, ...]:
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        data = zlib.decompressobj().decompress(packed, 10 * MOST_LOGS)
    except (ValueError, zlib.error):
        raise CallError("invalid cursor: copy one unchanged from an earlier response") from None
    offsets: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            offsets.append(value)
            value = shift = 0
    return tuple(offsets)
