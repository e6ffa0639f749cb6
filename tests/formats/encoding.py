"""Writes what the readers read, field by field: Protocol Buffers, TensorBoard's event files, W&B's files."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

from phalanx.formats.tfevents import masked_crc
from phalanx.formats.wandb_log import BLOCK, FIRST, HEAD, HEADER, IDENT, LAST, MAGIC, MIDDLE, WHOLE


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def data(field: int, value: bytes | str) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


# TensorBoard -----------------------------------------------------------------------------------------------------


def tf_record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    checks = struct.pack("<I", masked_crc(length)), struct.pack("<I", masked_crc(content))
    return length + checks[0] + content + checks[1]


def tf_event(value: bytes, step: int = 0, time: float = 1.7e9) -> bytes:
    """A record of one value of a summary."""
    return tf_record(double(1, time) + (number(2, step) if step else b"") + data(5, data(1, value)))


def tf_scalar(tag: str, value: float, step: int = 0, time: float = 1.7e9) -> bytes:
    return tf_event(data(1, tag) + single(2, value), step, time)


def tf_tensor(kind: int, shape: tuple[int, ...], content: bytes) -> bytes:
    sizes = b"".join(data(2, number(1, size)) for size in shape)
    return number(1, kind) + data(2, sizes) + content


def tf_tensor_event(tag: str, tensor: bytes, plugin: str = "", step: int = 0) -> bytes:
    metadata = data(9, data(1, data(1, plugin))) if plugin else b""
    return tf_event(data(1, tag) + metadata + data(8, tensor), step)


def png(width: int = 2, height: int = 2) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + bytes(width)) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# W&B -------------------------------------------------------------------------------------------------------------


def wandb_item(field: int, key: str | tuple[str, ...], value: Any) -> bytes:
    """An item of a history, summary or config. New versions write every key as a path, old ones as one name."""
    path = data(1, key) if isinstance(key, str) else b"".join(data(2, step) for step in key)
    return data(field, path + data(16, json.dumps(value)))


def wandb_run(run_id: str, **about: Any) -> bytes:
    config = b"".join(wandb_item(1, name, value) for name, value in about.get("config", {}).items())
    texts = {3: "project", 6: "group", 7: "job_type", 8: "name", 9: "notes"}
    encoded = b"".join(data(field, about[name]) for field, name in texts.items() if name in about)
    tags = b"".join(data(10, tag) for tag in about.get("tags", ()))
    started = data(17, number(1, int(about.get("started", 1_700_000_000))) + number(2, 500_000_000))
    commit = data(21, data(2, about["commit"])) if "commit" in about else b""
    return data(17, data(1, run_id) + encoded + data(4, config) + tags + started + commit)


def wandb_history(step: int, values: dict[Any, Any], time: float = 1.7e9) -> bytes:
    items = b"".join(wandb_item(1, key, value) for key, value in values.items())
    return data(2, items + wandb_item(1, "_timestamp", time) + data(2, number(1, step) if step else b""))


def wandb_config(values: dict[str, Any]) -> bytes:
    return data(5, b"".join(wandb_item(1, key, value) for key, value in values.items()))


def wandb_summary(values: dict[Any, Any]) -> bytes:
    return data(3, b"".join(wandb_item(1, key, value) for key, value in values.items()))


def wandb_exit(code: int = 0, runtime: int = 0) -> bytes:
    return data(18, (number(1, code) if code else b"") + (number(2, runtime) if runtime else b""))


def wandb_printed(text: str) -> bytes:
    return data(13, number(1, 1) + data(3, text))


def wandb_artifact(kind: str, name: str, path: str, digest: str, local_path: str) -> bytes:
    entry = data(1, path) + data(2, digest) + data(6, local_path)
    return data(8, data(4, kind) + data(5, name) + data(11, "latest") + data(12, number(1, 1) + data(4, entry)))


def wandb_log(records: list[bytes]) -> bytes:
    """The file: a record is cut into pieces that fit into what is left of a block."""
    content = bytearray(HEADER.pack(IDENT, MAGIC, 0))
    for place, record in enumerate(records):
        left = number(1, place) + record
        is_first = True
        while True:
            room = BLOCK - len(content) % BLOCK
            if room < HEAD.size:
                content += bytes(room)
                continue
            piece, left = left[: room - HEAD.size], left[room - HEAD.size :]
            kind = (WHOLE if is_first else LAST) if not left else (FIRST if is_first else MIDDLE)
            content += HEAD.pack(zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            is_first = False
            if not left:
                break
    return bytes(content)


def write_wandb(folder: Path, run_id: str, records: list[bytes], stamp: str = "20260101_000000") -> Path:
    """As W&B lays it out; answers the folder with the run's files."""
    files = folder / f"offline-run-{stamp}-{run_id}" / "files"
    files.mkdir(parents=True)
    (files.parent / f"run-{run_id}.wandb").write_bytes(wandb_log(records))
    return files
