"""TensorFlow's `TensorProto`, as far as summaries use it. Standard library only."""

from __future__ import annotations

import struct
from typing import NamedTuple

from phalanx.formats.protobuf import BYTES, Malformed, fields, latest, numbers, raw, reals, signed

MAX_ELEMENTS = 100_000  # curves and histograms have far fewer

_FLOAT, _DOUBLE, _STRING, _BOOL, _BFLOAT16, _HALF = 1, 2, 7, 10, 14, 19
# Layout of the elements of a type in `tensor_content`.
_FORMS: dict[int, str] = {
    _FLOAT: "f",
    _DOUBLE: "d",
    3: "i",
    4: "B",
    5: "h",
    6: "b",
    9: "q",
    _BOOL: "?",
    _BFLOAT16: "H",
    17: "H",
    _HALF: "H",
    22: "I",
    23: "Q",
}
_INTEGER_FIELDS = (7, 10, 11, 13, 16, 17)


class Tensor(NamedTuple):
    """Numbers, or strings when it is of strings."""

    shape: tuple[int, ...]
    values: list[float]
    strings: list[bytes] | None


def parse(data: bytes) -> Tensor:
    """Raises Malformed, also for types that summaries do not use."""
    kind, shape, content, values, strings = _parts(data)
    if kind == _STRING:
        return Tensor(shape, [], strings)
    if kind not in _FORMS:
        raise Malformed(f"a tensor of type {kind}")
    count = _count(shape)
    if content:
        values = reals(BYTES, content, _FORMS[kind])
    elif values and len(values) < count:
        values += [values[-1]] * (count - len(values))  # the last one is repeated
    if len(values) != count:
        raise Malformed("a tensor of another size than its shape")
    return Tensor(shape, [_real(kind, value) for value in values], None)


def _parts(data: bytes) -> tuple[int, tuple[int, ...], bytes, list[float], list[bytes]]:
    kind, content = 0, b""
    shape: tuple[int, ...] = ()
    values: list[float] = []
    strings: list[bytes] = []
    for number, wire, value in fields(data):
        if number == 1:
            kind = signed(value)
        elif number == 2:
            shape = _shape(raw(value))
        elif number == 4:
            content = raw(value)
        elif number in (5, 6):
            values.extend(reals(wire, value, "f" if number == 5 else "d"))
        elif number == 8:
            strings.append(raw(value))
        elif number in _INTEGER_FIELDS:
            values.extend(numbers(wire, value))
        if len(values) > MAX_ELEMENTS:
            raise Malformed("a tensor that is too large")
    return kind, shape, content, values, strings


def _shape(data: bytes) -> tuple[int, ...]:
    return tuple(signed(latest(raw(value)).get(1, 0)) for number, _, value in fields(data) if number == 2)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
        if size < 0 or count > MAX_ELEMENTS:
            raise Malformed("a tensor that is too large")
    return count


def _real(kind: int, value: float) -> float:
    if kind == _HALF:
        return float(struct.unpack("<e", struct.pack("<H", int(value) & 0xFFFF))[0])
    if kind == _BFLOAT16:
        return float(struct.unpack("<f", struct.pack("<I", (int(value) & 0xFFFF) << 16))[0])
    if kind == 23:
        return float(int(value) % (1 << 64))  # `numbers` reads them as signed
    return float(value)
