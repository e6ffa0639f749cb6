"""Writes TensorBoard's event files: the counterpart of `tfevents`. Standard library only.

A file grows: TensorBoard follows it while we append. Only scalars are written.
"""

from __future__ import annotations

import math
import os
import struct
from functools import lru_cache
from pathlib import Path

from phalanx.formats.tfevents import masked_crc

VERSION = "brain.Event:2"
_DOUBLE, _FLOAT, _LENGTH, _CHECKSUM = (struct.Struct(form) for form in ("<d", "<f", "<Q", "<I"))
_LARGEST = 3.4028234663852886e38  # of a float with four bytes
_WALL_TIME, _SIMPLE_VALUE = b"\x09", b"\x15"  # keys of fields: number and type
_STEP, _FILE_VERSION, _SUMMARY, _SESSION = b"\x10", b"\x1a", b"\x2a", b"\x3a"
_VALUE, _TAG = b"\x0a", b"\x0a"
_STARTED = b"\x08\x01"


class EventFileWriter:
    """Appends events to one file. To be closed after use."""

    def __init__(self, path: Path, at: float) -> None:
        self._stream = open(  # noqa: SIM115 - closed by `close`
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        )
        self._append(event(at, _FILE_VERSION + _sized(VERSION.encode())))

    def scalar(self, tag: str, step: int, at: float, value: float) -> None:
        self._append(event(at, _SUMMARY + _sized(_VALUE + _sized(_tagged(tag) + _SIMPLE_VALUE + _single(value))), step))

    def restart(self, step: int, at: float) -> None:
        """Readers forget what was logged at this step and later."""
        self._append(event(at, _SESSION + _sized(_STARTED), step))

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    def _append(self, data: bytes) -> None:
        self._stream.write(_head(len(data)) + data + _CHECKSUM.pack(masked_crc(data)))


def event(at: float, content: bytes, step: int = 0) -> bytes:
    """One `Event` message."""
    return _WALL_TIME + _DOUBLE.pack(at) + (_STEP + _varint(step & 0xFFFFFFFFFFFFFFFF) if step else b"") + content


@lru_cache(maxsize=1024)
def _head(length: int) -> bytes:
    data = _LENGTH.pack(length)
    return data + _CHECKSUM.pack(masked_crc(data))


@lru_cache(maxsize=4096)
def _tagged(tag: str) -> bytes:
    return _TAG + _sized(tag.encode("utf-8", "replace"))


def _single(value: float) -> bytes:
    if abs(value) > _LARGEST and math.isfinite(value):
        value = math.copysign(math.inf, value)
    return _FLOAT.pack(value)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
