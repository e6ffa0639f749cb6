"""Previews of files of any type: never executed, never unpickled, never read further than needed.

A preview has only the type, a few facts and some lines. Lines are unmodified: the caller must escape terminal control
characters.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import struct
import zipfile
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, BinaryIO, NamedTuple

HEAD = 64 << 10
TABLE_HEAD = 256 << 10
MOST_LINES = 200
MOST_ROWS = 30
LONGEST_LINE = 400
LONGEST_CELL = 40
WHOLE_JSON = 1 << 20
LONGEST_NUMPY_HEADER = 10_000
LONGEST_TENSORS_HEADER = 16 << 20
LONGEST_ZIP_LIST = 4 << 20


class Preview(NamedTuple):
    type: str
    facts: dict[str, Any]
    lines: list[str]
    is_cut: bool = False  # there is more


class Table(NamedTuple):
    columns: list[str]
    rows: list[list[str]]
    is_cut: bool


def preview(stream: BinaryIO, name: str, size: int) -> Preview:
    """The preview of a stream at its start. Never raises because of the file's content."""
    head = stream.read(HEAD)
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    try:
        found = _by_content(stream, head, ending, size)
    except Exception:  # noqa: BLE001 - a malicious file can make any parser raise anything
        found = None  # it is not what it claims to be
    return found or _text(head, size) or _binary(head, size)


def _by_content(stream: BinaryIO, head: bytes, ending: str, size: int) -> Preview | None:
    for mark, look in _MARKS.items():
        if head.startswith(mark):
            return look(stream, head, size)
    for mark, kind in _SOUNDS.items():
        if head.startswith(mark):
            return Preview(kind, {}, [])
    if ending == "safetensors":
        return _safetensors(stream, size)
    for mark, kind in _NAMED.items():
        if head.startswith(mark):
            return Preview(kind, {}, _hex(head), size > 0)
    if ending in ("json", "ipynb") and size <= WHOLE_JSON:
        stream.seek(0)
        return _lines("JSON", json.dumps(json.loads(stream.read()), indent=2, ensure_ascii=False).splitlines())
    if ending in ("csv", "tsv"):
        return _table(head, size, "\t" if ending == "tsv" else ",")
    return None


# text --------------------------------------------------------------------------------------------------------------


def _text(head: bytes, size: int) -> Preview | None:
    text = _decoded(head, size)
    if text is None:
        return None
    return _lines("text", text.splitlines(), is_cut=size > len(head))


def _decoded(head: bytes, size: int) -> str | None:
    """None when it is not text. The head may end within a character."""
    if b"\0" in head:
        return None
    try:
        return head.decode("utf-8")
    except UnicodeDecodeError as fault:
        if size > len(head) and len(head) - fault.start < 4:
            return head[: fault.start].decode("utf-8")
        return None


def _lines(kind: str, lines: Sequence[str], *, is_cut: bool = False) -> Preview:
    shown = [line[:LONGEST_LINE] + ("…" if len(line) > LONGEST_LINE else "") for line in lines[:MOST_LINES]]
    return Preview(kind, {}, shown, is_cut or len(lines) > MOST_LINES)


def read_table(stream: BinaryIO, name: str, size: int, most: int) -> Table | None:
    """The first rows of a table, by columns; None when the file is not a table, or not of the type of its name."""
    comma = {"csv": ",", "tsv": "\t"}.get(name.rpartition(".")[2].lower())
    head = stream.read(TABLE_HEAD)
    try:
        rows = _rows(head, size, comma) if comma else None
    except csv.Error:
        return None
    if not rows:
        return None
    cut = [[cell[:LONGEST_LINE] for cell in row] for row in rows[: most + 1]]
    return Table(cut[0], cut[1:], size > len(head) or len(rows) > len(cut))


def _rows(head: bytes, size: int, comma: str) -> list[list[str]] | None:
    text = _decoded(head, size)
    if text is None:
        return None
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=comma) if row]
    if size > len(head) and len(rows) > 1:
        rows.pop()  # its end is missing
    return rows


def _table(head: bytes, size: int, comma: str) -> Preview | None:
    rows = _rows(head, size, comma)
    if rows is None:
        return None
    is_cut = size > len(head)
    shown = [[_cell(cell) for cell in row] for row in rows[: MOST_ROWS + 1]]
    found = _lines("table", _aligned(shown), is_cut=is_cut or len(rows) > len(shown))
    return found._replace(facts={"columns": len(rows[0]) if rows else 0})


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _cell(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_CELL else flat[: LONGEST_CELL - 1] + "…"


# images ------------------------------------------------------------------------------------------------------------


def _image(kind: str, width: int, height: int) -> Preview:
    return Preview(kind, {"width": width, "height": height}, [])


def _png(_: BinaryIO, head: bytes, __: int) -> Preview:
    return _image("PNG image", *struct.unpack_from(">II", head, 16))


def _gif(_: BinaryIO, head: bytes, __: int) -> Preview:
    return _image("GIF image", *struct.unpack_from("<HH", head, 6))


def _bmp(_: BinaryIO, head: bytes, __: int) -> Preview | None:
    if head[6:10] != bytes(4):
        return None  # a text that begins with these letters
    width, height = struct.unpack_from("<ii", head, 18)
    return _image("BMP image", width, abs(height))


def _jpeg(stream: BinaryIO, _: bytes, __: int) -> Preview:
    """The size is in the frame header, after any number of segments of any length."""
    stream.seek(2)
    for _count in range(500):
        mark = stream.read(4)
        if len(mark) < 4 or mark[0] != 0xFF:
            break
        length = struct.unpack(">H", mark[2:])[0]
        if 0xC0 <= mark[1] <= 0xCF and mark[1] not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">xHH", stream.read(5))
            return _image("JPEG image", width, height)
        stream.seek(max(0, length - 2), io.SEEK_CUR)
    return Preview("JPEG image", {}, [])


def _riff(stream: BinaryIO, head: bytes, size: int) -> Preview | None:
    look = {b"WEBP": _webp, b"WAVE": _wav}.get(head[8:12])
    return look(stream, head, size) if look is not None else None


def _webp(_: BinaryIO, head: bytes, __: int) -> Preview:
    if head[12:16] == b"VP8X":
        width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
    elif head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", head, 26))
    return _image("WebP image", width, height)


# sounds ------------------------------------------------------------------------------------------------------------


def _wav(_: BinaryIO, head: bytes, size: int) -> Preview:
    """The duration follows from the file size: the header is short."""
    place = head.find(b"fmt ", 12)
    if place == -1:
        return Preview("WAV audio", {}, [])
    channels, rate, per_second = struct.unpack_from("<HII", head, place + 10)
    return _sound("WAV audio", channels, rate, size / max(1, per_second))


def _flac(_: BinaryIO, head: bytes, __: int) -> Preview:
    bits = int.from_bytes(head[18:26], "big")
    rate, channels, samples = bits >> 44, (bits >> 41 & 7) + 1, bits & (1 << 36) - 1
    return _sound("FLAC audio", channels, rate, samples / max(1, rate))


def _sound(kind: str, channels: int, rate: int, seconds: float) -> Preview:
    return Preview(kind, {"channels": channels, "rate": rate, "seconds": round(seconds, 2)}, [])


# arrays ------------------------------------------------------------------------------------------------------------


def _numpy(_: BinaryIO, head: bytes, size: int) -> Preview:
    return Preview("NumPy array", {**_numpy_header(head), "bytes": size}, [])


def _numpy_header(head: bytes) -> dict[str, Any]:
    """A NumPy file starts with a Python literal; only that literal is parsed."""
    is_long = head[6] > 1
    length = struct.unpack_from("<I" if is_long else "<H", head, 8)[0]
    start = 12 if is_long else 10
    if length > LONGEST_NUMPY_HEADER:
        raise ValueError("too long for a header")
    text = head[start : start + length].decode("latin-1")
    try:
        header = ast.literal_eval(text.strip())
    except SyntaxError as fault:
        raise ValueError("not a literal") from fault
    return {"dtype": str(header["descr"])[:200], "shape": _shape(header["shape"])}


def _shape(sides: Any) -> list[int]:
    shape = [int(side) for side in sides]
    if len(shape) > 64 or any(not 0 <= side < 2**63 for side in shape):
        raise ValueError("not a shape")
    return shape


def _safetensors(stream: BinaryIO, size: int) -> Preview:
    stream.seek(0)
    length = struct.unpack("<Q", stream.read(8))[0]
    if length > min(LONGEST_TENSORS_HEADER, size - 8):
        raise ValueError("too long for a header")
    header = json.loads(stream.read(length))
    about = header.pop("__metadata__", {})
    rows = [["TENSOR", "TYPE", "SHAPE"]]
    parameters = 0
    for name, tensor in header.items():
        shape = _shape(tensor["shape"])
        parameters += math.prod(shape)
        rows.append([_cell(name), _cell(str(tensor["dtype"])), "x".join(map(str, shape)) or "scalar"])
    facts = {"tensors": len(header), "parameters": parameters, **({"about": about} if about else {})}
    return _lines("safetensors", _aligned(rows))._replace(facts=facts)


def _zip(stream: BinaryIO, head: bytes, size: int) -> Preview:
    """The list of its members. PyTorch files are zip archives: their pickles are not opened."""
    if _zip_list_size(stream, size) > LONGEST_ZIP_LIST:
        return Preview("zip archive, of too many files to list", {}, _hex(head))
    with zipfile.ZipFile(stream) as archive:
        infos = archive.infolist()
        lines = []
        for info in infos[:MOST_LINES]:
            more = ""
            if info.filename.endswith(".npy") and len(infos) <= MOST_LINES:
                with archive.open(info) as member:
                    facts = _numpy_header(member.read(LONGEST_NUMPY_HEADER))
                more = f"  {facts['dtype']} {'x'.join(map(str, facts['shape']))}"
            lines.append(f"{info.file_size:>14,}  {info.filename}{more}")
    is_torch = any(info.filename.rpartition("/")[2] == "data.pkl" for info in infos)
    kind = "PyTorch file (a zip archive with a pickle, which is not opened)" if is_torch else "zip archive"
    found = _lines(kind, lines, is_cut=len(infos) > MOST_LINES)
    return found._replace(facts={"members": len(infos), "bytes": sum(info.file_size for info in infos)})


def _zip_list_size(stream: BinaryIO, size: int) -> int:
    """The number of bytes of the list, from the record at the end of the file."""
    stream.seek(max(0, size - 65_600))
    tail = stream.read(65_600)
    return int(struct.unpack_from("<I", tail, tail.rindex(b"PK\x05\x06") + 12)[0])


# anything else -----------------------------------------------------------------------------------------------------


def _binary(head: bytes, size: int) -> Preview:
    kind = "binary" if head else "empty"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        kind = "pickle (not opened: that would execute its content)"
    return Preview(kind, {}, _hex(head), size > 256)


def _hex(head: bytes) -> list[str]:
    lines = []
    for start in range(0, min(256, len(head)), 16):
        piece = head[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{start:08x}  {piece.hex(' '):<47}  {text}")
    return lines


_MARKS: dict[bytes, Callable[[BinaryIO, bytes, int], Preview | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
    b"BM": _bmp,
    b"\xff\xd8\xff": _jpeg,
    b"RIFF": _riff,
    b"fLaC": _flac,
    b"\x93NUMPY": _numpy,
    b"PK\x03\x04": _zip,
}
_SOUNDS = {
    b"OggS": "Ogg audio",
    **dict.fromkeys((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"), "MP3 audio"),
}
_NAMED = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"PAR1": "Parquet",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"%PDF": "PDF",
    b"\x7fELF": "ELF program or library",
    b"SQLite format 3\0": "SQLite database",
    b"GGUF": "GGUF model",
    b"ARROW1": "Arrow",
    b"II*\0": "TIFF image",
    b"MM\0*": "TIFF image",
}
