"""A look into a file: whatever it is, it is told truly or not at all, and nothing in it runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.artifacts.previews import HEAD, LONGEST_LINE, MOST_LINES, MOST_ROWS, Preview, preview


def look(data: bytes, name: str = "file") -> Preview:
    return preview(io.BytesIO(data), name, len(data))


def safetensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


class TestText:
    def test_its_first_lines(self) -> None:
        found = look("one\ntwö\n".encode())
        assert found == Preview("text", {}, ["one", "twö"])

    def test_long_ones_are_cut(self) -> None:
        found = look(b"x\n" * 100_000)
        assert (found.type, len(found.lines), found.is_cut) == ("text", MOST_LINES, True)
        found = look(b"y" * 1000)
        assert found.lines == ["y" * LONGEST_LINE + "…"]

    def test_a_character_that_is_cut_by_the_end_of_the_head_is_no_binary(self) -> None:
        found = look(b"a" * (HEAD - 1) + "€uro".encode() * 10)
        assert found.type == "text"

    def test_nothing(self) -> None:
        assert look(b"") == Preview("text", {}, [])

    def test_json_is_laid_out(self) -> None:
        found = look(b'{"a":[1,{"b":"\\u00fc"}]}', "x.json")
        assert found.type == "JSON"
        assert found.lines == ["{", '  "a": [', "    1,", "    {", '      "b": "ü"', "    }", "  ]", "}"]

    @pytest.mark.parametrize("text", [b'{"a":', b"[" * 50_000, b"1" * 9999, b"\xff\xfe"])
    def test_what_is_not_json_is_shown_as_it_is(self, text: bytes) -> None:
        assert look(text, "x.json").type in ("text", "binary")

    def test_tables_are_aligned(self) -> None:
        found = look(b'a,b\n1,"two, or\nthree"\n100,x\n', "x.csv")
        assert (found.type, found.facts) == ("table", {"columns": 2})
        assert found.lines == ["a    b", "1    two, or three", "100  x"]
        assert look(b"a\tb\n1\t2\n", "x.tsv").lines == ["a  b", "1  2"]

    def test_of_long_tables_the_first_rows(self) -> None:
        found = look(b"".join(b"%d,x\n" % number for number in range(1000)), "x.csv")
        assert (len(found.lines), found.is_cut) == (MOST_ROWS + 1, True)

    def test_odd_tables(self) -> None:
        assert look(b"", "x.csv").lines == []
        assert look(b"a,b\n1\n1,2,3\n", "x.csv").lines == ["a  b", "1", "1  2  3"]
        assert look(b"x," * 100_000, "x.csv").is_cut
        assert look(b'"' + b"x" * 200_000, "x.csv").type in ("table", "text")
        assert look(b"\0\1\2", "x.csv").type == "binary"


def png(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


class TestImages:
    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (png(640, 480), "PNG image"),
            (b"GIF89a" + struct.pack("<HH", 640, 480), "GIF image"),
            (b"BM" + bytes(12) + struct.pack("<Iii", 40, 640, -480), "BMP image"),
            (b"\xff\xd8\xff\xe0\0\4ab\xff\xc2\0\x0b\x08" + struct.pack(">HH", 480, 640), "JPEG image"),
            (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x7f\2\0\xdf\1\0", "WebP image"),
            (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480), "WebP image"),
            (b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"/" + struct.pack("<I", 639 | 479 << 14), "WebP image"),
        ],
    )
    def test_type_and_size(self, data: bytes, kind: str) -> None:
        found = look(data + bytes(50))
        assert (found.type, found.facts) == (kind, {"width": 640, "height": 480})

    def test_texts_that_begin_like_one(self) -> None:
        assert look(b"BMW makes cars").type == "text"
        assert look(b"RIFFRAFF").type == "text"

    def test_torn_ones(self) -> None:
        for data in (png(1, 1)[:12], b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBP", b"\xff\xd8\xff\xe0\0\0" * 100):
            assert isinstance(look(data), Preview)


class TestArrays:
    @pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 5)])
    def test_numpy(self, shape: tuple[int, ...]) -> None:
        found = look(npy(np.zeros(shape, "<f4")), "x.npy")
        assert found.type == "NumPy array"
        assert (found.facts["dtype"], found.facts["shape"]) == ("<f4", list(shape))

    def test_numpy_archives(self) -> None:
        stream = io.BytesIO()
        np.savez(stream, a=np.zeros((2, 3)), b=np.arange(4))
        found = look(stream.getvalue(), "x.npz")
        assert found.type == "zip archive"
        assert any("a.npy  <f8 2x3" in line for line in found.lines)

    def test_safetensors(self) -> None:
        header = {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "b": {"dtype": "F16", "shape": [], "data_offsets": [24, 26]},
        }
        found = look(safetensors(header, bytes(26)), "m.safetensors")
        assert found.facts == {"tensors": 2, "parameters": 7, "about": {"format": "pt"}}
        assert found.lines == ["TENSOR  TYPE  SHAPE", "w       F32   2x3", "b       F16   scalar"]

    @pytest.mark.parametrize(
        "data",
        [
            safetensors(b"{"),
            safetensors([]),
            safetensors({"w": 3}),
            safetensors({"w": {"dtype": "F32", "shape": [-1]}}),
            safetensors({"w": {"dtype": "F32", "shape": [10**400]}}),
            struct.pack("<Q", 2**63) + b"{}",
            b"\1\2",
            safetensors(b"[" * 100_000),
        ],
    )
    def test_what_only_claims_to_be_safetensors(self, data: bytes) -> None:
        assert look(data, "m.safetensors").type in ("binary", "text")

    @pytest.mark.parametrize(
        "header",
        [
            b"__import__('os').system('touch /tmp/ran')",
            b"{'descr': '<f4', 'shape': (__import__('os').getpid(),)}",
            b"(" * 5000,
            b"-" * 9000 + b"1",
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            b"{}",
        ],
    )
    def test_a_header_is_a_literal_and_never_runs(self, header: bytes) -> None:
        data = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header
        assert look(data, "x.npy").type == "binary"


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.place),)


class TestArchives:
    def test_pickles_are_named_and_not_opened(self, tmp_path: Path) -> None:
        data = pickle.dumps(Bomb(tmp_path / "ran"), protocol=4)
        for name in ("x.pkl", "x.json", "x.npy", "x.safetensors", "x"):
            assert look(data, name).type.startswith("pickle (not opened")
        assert not (tmp_path / "ran").exists()
        pickle.loads(data)
        assert (tmp_path / "ran").exists()

    def test_a_file_of_pytorch_is_listed(self, tmp_path: Path) -> None:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("model/data.pkl", pickle.dumps(Bomb(tmp_path / "ran")))
            archive.writestr("model/data/0", bytes(100))
        found = look(stream.getvalue(), "m.pt")
        assert found.type.startswith("PyTorch file")
        assert found.facts["members"] == 2
        assert any(line.endswith("model/data/0") for line in found.lines)
        assert not (tmp_path / "ran").exists()

    def test_hostile_archives(self) -> None:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bomb.npy", bytes(50_000_000))
            archive.writestr("../../etc/passwd", b"x")
        whole = stream.getvalue()
        assert isinstance(look(whole), Preview)
        for cut in range(0, len(whole), 997):
            assert isinstance(look(whole[:cut]), Preview)

    def test_an_archive_of_too_many_files_is_not_listed(self) -> None:
        end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 2**31, 0, 0)
        assert look(b"PK\x03\x04" + bytes(100) + end).type.startswith("zip archive, of too many")

    @pytest.mark.parametrize(
        ("data", "kind"), [(b"\x89HDF\r\n\x1a\n", "HDF5"), (b"PAR1", "Parquet"), (b"\x1f\x8b\x08", "gzip")]
    )
    def test_others_are_named(self, data: bytes, kind: str) -> None:
        assert look(data + bytes(20)).type == kind

    def test_anything_else_is_shown_in_hex(self) -> None:
        found = look(b"\0\1\x1b[31mred" + bytes(1000))
        assert (found.type, found.is_cut) == ("binary", True)
        assert found.lines[0] == "00000000  00 01 1b 5b 33 31 6d 72 65 64 00 00 00 00 00 00  ...[31mred......"
        assert len(found.lines) == 16


NAMES = ["x", "x.json", "x.csv", "x.npy", "x.safetensors", "x.tsv", "x.ipynb"]
STARTS = [
    b"",
    b"\x93NUMPY\1\0",
    b"PK\x03\x04",
    b"\xff\xd8\xff",
    b"RIFF....WEBP",
    b"\x89PNG\r\n\x1a\n",
    b"GIF89a",
    b"BM",
]


@given(st.sampled_from(STARTS), st.binary(max_size=300), st.sampled_from(NAMES))
def test_no_file_can_make_it_fail(start: bytes, data: bytes, name: str) -> None:
    found = look(start + data, name)
    assert len(found.lines) <= MOST_LINES
    assert all(len(line) <= LONGEST_LINE + 1 for line in found.lines)
