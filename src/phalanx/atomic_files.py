"""Atomic writes of files, and private folders. Standard library only, Python 3.8+."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file; None if it is missing or damaged."""
    try:
        with open(path, "rb") as stream:
            return json.loads(stream.read())
    except (OSError, ValueError):
        return None


def make_private(folder: Path, below: Path) -> None:
    """Create a folder and its parents up to `below`, all private: `mkdir(parents=True)` would make parents public."""
    for missing in reversed([folder, *folder.parents][: len(folder.relative_to(below).parts)]):
        missing.mkdir(mode=0o700, exist_ok=True)


def write_atomic(path: str | os.PathLike[str], data: bytes, *, sync: bool = True, mode: int = 0o600) -> None:
    """Write a file completely or not at all, even if this process is killed; private unless `mode` is given. Without
    `sync` it is many times faster, but a power failure within seconds may lose it: acceptable for data that only
    matters while the machine is up. Raises OSError.
    """
    with draft_of(path) as draft:
        _write(draft, data, sync=sync, mode=mode)


def write_plain(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a new, private file in a folder that no other process knows yet. Raises OSError."""
    _write(path, data, sync=False, mode=0o600)


def share_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Let a new path name the same file; a private copy on a filesystem without hard links. Neither may be changed in
    place. Raises OSError."""
    try:
        os.link(source, target)
    except OSError:
        with open(source, "rb") as stream:
            write_plain(target, stream.read())


def write_new(path: str | os.PathLike[str], data: bytes, *, sync: bool = True, mode: int = 0o600) -> None:
    """Like `write_atomic`, but never replaces a file. Raises FileExistsError, OSError."""
    draft = _draft_path(path)
    try:
        _write(draft, data, sync=sync, mode=mode)
        try:
            os.link(draft, path)  # unlike a rename, it fails if the file exists
        except FileExistsError:
            raise
        except OSError:  # a filesystem without hard links
            if os.path.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path)) from None
            os.replace(draft, path)
    finally:
        _remove(draft)


@contextmanager
def draft_of(target: str | os.PathLike[str], ending: str = "") -> Iterator[str]:
    """A path beside the target to write to: it replaces the target at the end, and is removed if something fails.
    `ending`: for libraries that choose a format by it.
    """
    draft = _draft_path(target, ending)
    try:
        yield draft
        os.replace(draft, target)
    except BaseException:
        _remove(draft)
        raise


def _draft_path(target: str | os.PathLike[str], ending: str = "") -> str:
    """Hidden, and different for each writer: threads and other machines may write the same file."""
    return os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.draft{ending}")


def _write(path: str | os.PathLike[str], data: bytes, *, sync: bool, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        rest = memoryview(data)
        while rest:  # a single call may write less
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(draft: str) -> None:
    with suppress(OSError):  # it became the file, or was never written
        os.unlink(draft)
