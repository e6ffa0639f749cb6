"""A minimal Protocol Buffers reader for other tools' files. Standard library only.

For any bytes, the only exception is `Malformed`, and memory use is bounded by their size.
Nothing here recurses: the caller parses nested messages with another call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 1_000_000  # of one message: a hostile one has as many as it has bytes
MAX_NUMBERS = 200_000  # packed together

Value = int | bytes
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


class Malformed(ValueError):
    """The bytes are not a message."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned number and its end position."""
    result = shift = 0
    while shift < 70:
        if position >= len(data):
            raise Malformed("a number that does not end")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise Malformed("a number of more than ten bytes")


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """The fields of a message: number, wire type, and the number or bytes."""
    position, end = 0, len(data)
    for _ in range(MAX_FIELDS):
        if position >= end:
            return
        key = data[position]
        position += 1
        if key >= 0x80:
            key, position = varint(data, position - 1)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, position = varint(data, position)
        elif wire == FIXED64:
            length = 8
        elif wire == FIXED32:
            length = 4
        else:
            raise Malformed(f"wire type {wire}")
        if length > end - position:
            raise Malformed("a field that is longer than its message")
        yield number, wire, data[position : position + length]
        position += length
    raise Malformed("too many fields")


def latest(data: bytes) -> dict[int, Value]:
    """The last value of each field of a message."""
    return {number: value for number, _, value in fields(data)}


def signed(value: Value) -> int:
    """An int32 or int64."""
    if not isinstance(value, int):
        raise Malformed("a number was expected")
    return value - (1 << 64) if value >> 63 else value


def double(value: Value) -> float:
    if not isinstance(value, bytes) or len(value) != 8:
        raise Malformed("a double was expected")
    return float(_DOUBLE.unpack(value)[0])


def single(value: Value) -> float:
    if not isinstance(value, bytes) or len(value) != 4:
        raise Malformed("a float was expected")
    return float(_FLOAT.unpack(value)[0])


def raw(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise Malformed("bytes were expected")
    return value


def text(value: Value) -> str:
    return raw(value).decode("utf-8", "replace")


def numbers(wire: int, value: Value) -> list[int]:
    """A repeated integer: one of them, or many packed together."""
    if wire == VARINT:
        return [signed(value)]
    data, position, found = raw(value), 0, []
    while position < len(data):
        number, position = varint(data, position)
        found.append(signed(number))
        if len(found) > MAX_NUMBERS:
            raise Malformed("a list of too many numbers")
    return found


def reals(wire: int, value: Value, form: str) -> list[float]:
    """A repeated float (`f`) or double (`d`): one of them, or many packed together."""
    data = raw(value)
    size = struct.calcsize("<" + form)
    if (wire != BYTES and len(data) != size) or len(data) % size or len(data) > size * MAX_NUMBERS:
        raise Malformed("a list of numbers of another size")
    return list(struct.unpack(f"<{len(data) // size}{form}", data))
