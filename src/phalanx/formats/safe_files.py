"""Reads and copies untrusted files safely: nothing outside of the source, nothing endless, no devices."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TextIO

from phalanx.atomic_files import draft_of, write_atomic

MAX_DEPTH = 40
MAX_FILES = 1_000_000
SPARE_BYTES = 256 << 20  # of free disk space that copies must leave
LONGEST_STEP = 200  # bytes of one path component: file systems allow 255
_PIECE = 1 << 20


class FileRefused(Exception):
    """A file that is rejected. The message is a few words, the same for all files of its kind."""


class FileMissing(FileRefused):
    """The file does not exist (any more)."""


def open_within(path: Path, root: Path) -> int:
    """A descriptor of a regular file that is below the root after resolving links. Raises FileRefused."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise FileRefused("links that leave the source")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileMissing("files that are not there") from None
    except PermissionError:
        raise FileRefused("files that may not be read") from None
    except (OSError, ValueError):
        raise FileRefused("files that cannot be opened") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefused("what is not a regular file")
    return descriptor


def read_bytes(path: Path, root: Path, limit: int) -> bytes:
    """The content of a small file. Raises FileRefused, OSError."""
    with os.fdopen(open_within(path, root), "rb") as stream:
        if os.fstat(stream.fileno()).st_size > limit:
            raise FileRefused("files that are larger than expected")
        return stream.read(limit)


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file and link to a file below a folder, by its relative name, in order. Links to folders are not entered,
    and unreadable ones are skipped."""
    waiting = [(folder, "", 0)]
    count = 0
    while waiting:
        here, before, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in entries:
            name = before + entry.name
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    folders.append((here / entry.name, name + "/", depth + 1))
            elif count < MAX_FILES:
                count += 1
                yield name, here / entry.name
        waiting.extend(reversed(folders))


def copy(path: Path, root: Path, target: Path) -> int:
    """Copy a file atomically, as a private file; return its size. Raises FileRefused, OSError."""
    with os.fdopen(open_within(path, root), "rb") as source:
        size = os.fstat(source.fileno()).st_size
        make_folder(target.parent)
        if size + SPARE_BYTES > shutil.disk_usage(target.parent).free:
            raise FileRefused("files that do not fit on the disk")
        with draft_of(target) as draft, os.fdopen(new(draft), "wb") as copied:
            left = size  # not more: it may grow for ever
            while left and (piece := source.read(min(left, _PIECE))):
                copied.write(piece)
                left -= len(piece)
    return size - left


def write(target: Path, data: bytes) -> None:
    """Write a private file atomically. Raises OSError."""
    make_folder(target.parent)
    write_atomic(target, data, sync=False)


def make_folder(folder: Path) -> None:
    """Create a private folder and its missing parents."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def new(path: str | os.PathLike[str]) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def new_text(path: Path) -> TextIO:
    return os.fdopen(new(path), "w", encoding="utf-8", errors="backslashreplace", newline="")


def digest(path: Path, root: Path, algorithm: str = "sha256") -> bytes:
    """Raises FileRefused, OSError."""
    with os.fdopen(open_within(path, root), "rb") as stream:
        return hashlib.file_digest(stream, algorithm).digest()


def below(name: str) -> str:
    """A relative path that stays below its folder. Raises FileRefused when none can be made."""
    if "\0" in name or "\\" in name or name.startswith("/"):
        raise FileRefused("names that are not relative paths")
    steps = [step for step in PurePosixPath(name).parts if step != "."]
    if not steps or ".." in steps:
        raise FileRefused("names that are not relative paths")
    cut = [step.encode("utf-8", "replace")[:LONGEST_STEP].decode("utf-8", "ignore") for step in steps]
    return "/".join("_" + step[1:] if step.startswith(".") else step for step in cut)


class Names:
    """Unique file names made from any text, also on case-insensitive file systems."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def name(self, text: str) -> str:
        kept = "".join(c if (c.isascii() and c.isalnum()) or c in "-_.=+ " else "_" for c in text)[:80].strip(" .")
        while True:
            count = self._taken[kept.lower()] = self._taken.get(kept.lower(), 0) + 1
            name = kept if count == 1 and kept else f"{kept}~{count}"
            if name == kept or name.lower() not in self._taken:
                self._taken.setdefault(name.lower(), 1)
                return name
