"""The file in which W&B keeps a run (`run-<id>.wandb`): records of Protocol Buffers, framed as LevelDB frames its log.

Blocks of 32 KiB hold pieces with a head of seven bytes: checksum (CRC-32 of the type and the data), length, and a type
which says whether the piece is a whole record, its first, a middle, or its last part. Damaged parts are skipped
and counted.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from phalanx.formats.safe_files import open_within

IDENT = b":W&B"
HEADER = struct.Struct("<4sHB")
MAGIC = 0xBEE1
HEAD = struct.Struct("<IHB")
BLOCK = 32_768
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
MAX_RECORD = 64 << 20


def is_log(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(IDENT)) == IDENT
    except OSError:
        return False


def records(path: Path, root: Path, skipped: Counter[str]) -> Iterator[bytes]:
    """Every record of a file that can be read: `skipped` counts the damaged bytes, and records that are too large.
    Raises OSError, FileRefused."""
    whole = bytearray()
    is_open = False
    for kind, data in _pieces(path, root, skipped):
        if kind in (WHOLE, FIRST):
            if is_open:
                skipped["damage"] += len(whole)
            whole = bytearray(data)
            is_open = True
        elif not is_open:
            skipped["damage"] += len(data)
            continue
        else:
            whole += data
        if len(whole) > MAX_RECORD:
            skipped["too large"] += 1
            whole, is_open = bytearray(), False
        elif kind in (WHOLE, LAST):
            yield bytes(whole)
            is_open = False
    if is_open:
        skipped["damage"] += len(whole)


class WandbPosition(NamedTuple):
    """How far a growing file was read: a block, and the records that begin in it and were read."""

    block: int = 0
    taken: int = 0


def records_after(path: Path, root: Path, position: WandbPosition) -> Iterator[tuple[bytes, WandbPosition]]:
    """The complete records after a position, each with the position behind it. Raises OSError, FileRefused."""
    whole, begin, number = bytearray(), position, position.block
    is_open = False
    with os.fdopen(open_within(path, root), "rb") as stream:
        stream.seek(number * BLOCK)
        while block := stream.read(BLOCK):
            taken = 0
            for kind, data in _block(block, 0 if number else HEADER.size, Counter()):
                if kind in (WHOLE, FIRST):
                    taken += 1
                    whole, begin, is_open = bytearray(data), WandbPosition(number, taken), True
                elif is_open:
                    whole += data
                if is_open and kind in (WHOLE, LAST):
                    is_open = False
                    if begin > position:
                        yield bytes(whole), begin
                is_open = is_open and len(whole) <= MAX_RECORD
            number += 1


def _pieces(path: Path, root: Path, skipped: Counter[str]) -> Iterator[tuple[int, bytes]]:
    with os.fdopen(open_within(path, root), "rb") as stream:
        start = HEADER.size
        block = stream.read(BLOCK)
        if len(block) < start or block[:4] != IDENT:
            skipped["damage"] += len(block)
            return
        while len(block) > start:
            yield from _block(block, start, skipped)
            block, start = stream.read(BLOCK), 0


def _block(block: bytes, position: int, skipped: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """The pieces of a block. Where one is damaged the rest of the block is lost: its length cannot be trusted."""
    while len(block) - position >= HEAD.size:
        checksum, length, kind = HEAD.unpack_from(block, position)
        if not (checksum or length or kind):
            return  # never written
        start, end = position + HEAD.size, position + HEAD.size + length
        if end > len(block) or not WHOLE <= kind <= LAST:
            break
        data = block[start:end]
        if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            break
        yield kind, data
        position = end
    rest = block[position:]
    if rest.strip(b"\0"):
        skipped["damage"] += len(rest)
