"""Archives of code, to send to another machine. The same files always make the same bytes."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple
from unicodedata import category

from phalanx.errors import CallError

OLDEST = 315_532_800  # seconds: the earliest modification time that every archive format supports
MAX_BYTES = 500 << 20
BLOCK = 512
CHUNK = 1 << 16
MOST_FILES = 50_000
MOST_FOLDERS = 50_000
LONGEST_PATH = 1000  # characters
LONGEST_STEP_BYTES = 255
MOST_STEPS = 64
LONGEST_EXTRA = 1 << 16  # bytes of an extended header
MOST_EXTRAS = 200_000
MOST_TIMES = 200  # maximum compression ratio; that of text is at most ten
FREELY = 16 << 20  # bytes before the ratio is checked
SPARE_BYTES = 64 << 20  # of the disk that stay free
LOOK_BYTES = 8 << 20  # written between two checks of the disk
_FILES, _FOLDER, _PAX, _PAX_FOR_ALL, _LONG_NAME = (b"0", b"\0", b"7"), b"5", b"x", b"g", b"L"
_OTHERS = {b"1": "a link", b"2": "a link", b"3": "a device", b"4": "a device", b"6": "a pipe", b"S": "a sparse file"}


def pack(
    folder: Path, files: Iterable[Path], target: BinaryIO, added: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write these files of a folder, and `added` ones by name, as a tar.gz. Links are replaced by the files they
    point to; owners and modification times are left out. Raises OSError."""
    with (
        gzip.GzipFile(fileobj=target, mode="wb", compresslevel=6, mtime=0, filename="") as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            with (folder / path).open("rb") as stream:
                state = os.fstat(stream.fileno())
                entry = tarfile.TarInfo(path.as_posix())
                entry.size, entry.mtime = state.st_size, OLDEST
                entry.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
                archive.addfile(entry, stream)
        for name, data in added.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), OLDEST, 0o644
            archive.addfile(entry, BytesIO(data))


class Unpacked(NamedTuple):
    files: int
    size: int


class _Header(NamedTuple):
    name: str
    size: int
    mode: int
    kind: bytes


def unpack(packed: BinaryIO, target: Path, most: int = MAX_BYTES) -> Unpacked:
    """Unpack into a new folder, which is removed after an error. What is too much is refused before anything is
    written: files take far longer to write and remove than to count. Raises CallError, OSError."""
    start = packed.tell()
    _Unpacking(_Inflated(packed, most), target, most).count()
    packed.seek(start)
    target.mkdir(mode=0o700)
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, target, ignore_errors=True)
        found = _Unpacking(_Inflated(packed, most), target, most).run()
        undo.pop_all()
    return found


class _Inflated:
    """Reads a gzip stream of one member, with limits on its size and compression ratio."""

    def __init__(self, packed: BinaryIO, most: int) -> None:
        self.packed = packed
        self.most = most + (most >> 2) + (64 << 20)  # and room for headers and padding
        self.inflater = zlib.decompressobj(wbits=31)
        self.came = self.gave = 0

    def read(self, size: int) -> bytes:
        """Returns fewer bytes only at the end."""
        pieces, missing = [], size
        while missing and (piece := self._some(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def exactly(self, size: int) -> bytes:
        found = self.read(size)
        if len(found) != size:
            raise CallError("the archive is cut short")
        return found

    def end(self) -> None:
        """Check that only zeros follow, and that the checksum is correct."""
        while piece := self._some(CHUNK):
            if piece.strip(b"\0"):
                raise CallError("something follows the end of the archive")
        if not self.inflater.eof:
            raise CallError("the archive is cut short")
        if self.inflater.unused_data or self.packed.read(1):
            raise CallError("something follows the end of the archive")

    def _some(self, most: int) -> bytes:
        while not self.inflater.eof:
            given = self.inflater.unconsumed_tail or self._fed()
            if not given:
                return b""
            try:
                piece = self.inflater.decompress(given, min(most, CHUNK))
            except zlib.error:
                raise CallError("this is not a tar.gz, or it is damaged") from None
            self.gave += len(piece)
            if self.gave > self.most or (self.gave > FREELY and self.gave > MOST_TIMES * self.came):
                raise CallError("the archive expands to far more than was sent: this is not code")
            if piece:
                return piece
        return b""

    def _fed(self) -> bytes:
        given = self.packed.read(CHUNK)
        self.came += len(given)
        return given


class _Unpacking:
    def __init__(self, stream: _Inflated, target: Path, most: int) -> None:
        self.stream = stream
        self.target = target
        self.most = most
        self.files = self.size = 0
        self.looked_at = -LOOK_BYTES
        self.folders: set[tuple[str, ...]] = {()}

    def run(self) -> Unpacked:
        for header in self._headers():
            steps = steps_of(header.name)
            if header.kind == _FOLDER:
                self._folder(steps)
                self._pass_over(header.size)
            else:
                self._file(steps, header)
        self.stream.end()
        return Unpacked(self.files, self.size)

    def count(self) -> None:
        """Raises CallError for too many or too large files."""
        for header in self._headers():
            if header.kind != _FOLDER:
                self._count(header)
            self._pass_over(header.size)

    def _headers(self) -> Iterator[_Header]:
        """The headers of files and folders, each combined with the extended headers before it."""
        name, size, extras = "", -1, 0
        while block := self.stream.read(BLOCK):
            if block == bytes(BLOCK):
                return
            header = _read_header(block)
            if header.kind in (_PAX, _PAX_FOR_ALL, _LONG_NAME):
                extras += 1
                if header.size > LONGEST_EXTRA or extras > MOST_EXTRAS:
                    raise CallError("the archive has too many or too large headers")
                text = self._padded(header.size)
                if header.kind == _LONG_NAME:
                    name = _decoded(text.rstrip(b"\0"))
                elif header.kind == _PAX:
                    pax_headers = _pax(text)
                    name, size = pax_headers.get("path", name), _whole(pax_headers.get("size", str(size)))
                continue
            if header.kind in _OTHERS or header.kind not in (*_FILES, _FOLDER):
                what = _OTHERS.get(header.kind, "something")
                raise CallError(f"{(name or header.name)[:200]!r} is {what}: only files and folders are accepted")
            yield header._replace(name=name or header.name, size=header.size if size < 0 else size)
            name, size = "", -1
        raise CallError("the archive is cut short")

    def _folder(self, steps: tuple[str, ...]) -> None:
        """Create a folder and its parents. All of them are new, so no link leads out of the target."""
        if steps in self.folders:
            return
        for depth in range(1, len(steps) + 1):
            if steps[:depth] not in self.folders:
                if len(self.folders) > MOST_FOLDERS:
                    raise CallError(f"more than {MOST_FOLDERS:,} folders: this is not code")
                try:
                    self.target.joinpath(*steps[:depth]).mkdir(mode=0o700)
                except FileExistsError:
                    raise CallError(f"{'/'.join(steps[:depth])!r} occurs twice") from None
                self.folders.add(steps[:depth])

    def _file(self, steps: tuple[str, ...], header: _Header) -> None:
        if not steps:
            raise CallError("a file has no name")
        self._count(header)
        self._folder(steps[:-1])
        mode = 0o700 if header.mode & 0o100 else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.target.joinpath(*steps), flags, mode)
        except FileExistsError:
            raise CallError(f"{'/'.join(steps)!r} occurs twice") from None
        with os.fdopen(descriptor, "wb") as written:
            for piece in self._pieces(header.size):
                self._look_at_the_disk()
                written.write(piece)
        self._pass_over(header.size, of_it=header.size)

    def _count(self, header: _Header) -> None:
        self.files += 1
        self.size += header.size
        if self.files > MOST_FILES:
            raise CallError(f"more than {MOST_FILES:,} files: exclude what is not code in .polyaxonignore")
        if self.size > self.most:
            raise CallError(f"more than {self.most >> 20} MiB: exclude what is not code in .polyaxonignore")

    def _look_at_the_disk(self) -> None:
        if self.stream.gave - self.looked_at >= LOOK_BYTES:
            self.looked_at = self.stream.gave
            if shutil.disk_usage(self.target).free < SPARE_BYTES + LOOK_BYTES:
                raise CallError("the disk of the server is full")

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.stream.exactly(min(size, CHUNK))
            size -= len(piece)
            yield piece

    def _pass_over(self, size: int, of_it: int = 0) -> None:
        """Skip the rest of a content, and its padding to whole blocks."""
        for _ in self._pieces(-(-size // BLOCK) * BLOCK - of_it):
            pass

    def _padded(self, size: int) -> bytes:
        text = self.stream.exactly(size)
        self._pass_over(size, of_it=size)
        return text


def steps_of(name: str) -> tuple[str, ...]:
    """The parts of a relative path without `..`. Raises CallError for other paths."""
    steps = tuple(step for step in name.split("/") if step not in ("", "."))
    is_odd = any(sign == "\\" or category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in name)
    if name.startswith("/") or ".." in steps or is_odd:
        raise CallError(f"{name[:200]!r} is not accepted: paths must be relative, without `..` and special characters")
    too_long = any(len(step.encode()) > LONGEST_STEP_BYTES for step in steps)
    if too_long or len(name) > LONGEST_PATH or len(steps) > MOST_STEPS:
        raise CallError(
            f"{name[:200]!r} is too long: a path has at most {LONGEST_PATH} characters and {MOST_STEPS} parts"
        )
    return steps


def _read_header(block: bytes) -> _Header:
    if len(block) < BLOCK:
        raise CallError("the archive is cut short")
    claimed, counted = _octal(block[148:156]), sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if claimed != counted:
        raise CallError("the archive is damaged, or not a tar")
    name = _decoded(block[:100].split(b"\0", 1)[0])
    prefix = _decoded(block[345:500].split(b"\0", 1)[0]) if block[257:263] == b"ustar\0" else ""
    return _Header(
        f"{prefix}/{name}" if prefix else name, _octal(block[124:136]), _octal(block[100:108]), block[156:157]
    )


def _octal(field: bytes) -> int:
    """Sizes of 8 GiB and more have another encoding; such files are too large anyway."""
    text = field.strip(b" \0")
    if text.strip(b"01234567"):
        raise CallError("the archive is damaged, or holds a file that is too large")
    return int(text or b"0", 8)


def _pax(text: bytes) -> dict[str, str]:
    """Parse records such as `27 path=NAME`, each preceded by its length."""
    found, position = {}, 0
    while position < len(text) and text[position:].strip(b"\0"):
        head = text[position : position + 8].split(b" ", 1)[0]
        length = _whole(_decoded(head))
        row = text[position : position + length]
        key, equals, value = row[len(head) + 1 :].partition(b"=")
        if length <= len(head) or not equals or not row.endswith(b"\n"):
            raise CallError("the archive is damaged")
        if key.startswith(b"GNU.sparse"):
            raise CallError("the archive has a sparse file: only ordinary files are accepted")
        if key in (b"path", b"size"):
            found[key.decode()] = _decoded(value[:-1])
        position += length
    return found


def _whole(text: str) -> int:
    if text == "-1":
        return -1
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise CallError("the archive is damaged, or holds a file that is too large")
    return int(text)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise CallError(f"{text[:200]!r} is not UTF-8: rename it") from None
