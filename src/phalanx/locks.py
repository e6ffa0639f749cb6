"""File locks between processes. The kernel releases them when their holder dies. Standard library only, Python 3.8+."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool = True) -> Iterator[bool]:
    """Yields whether the exclusive lock was acquired; always True with `wait`. Raises OSError if the file cannot be
    opened."""
    descriptor = open_lock(path)
    try:
        yield take(descriptor, wait=wait)
    finally:
        os.close(descriptor)


def open_lock(path: str | os.PathLike[str]) -> int:
    """A descriptor of a lock file, which is created if missing. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def take(descriptor: int, *, wait: bool, shared: bool = False) -> bool:
    """Lock an open file. False if others hold it and `wait` is false. Raises OSError if the file cannot be locked."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def seems_held(path: str | os.PathLike[str]) -> bool:
    """Whether a process of this machine seems to hold an exclusive lock, without trying to take it: others would find
    it taken meanwhile."""
    try:
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks", encoding="ascii") as stream:
            rows = [line.split() for line in stream]
    except OSError:
        return False
    return any("FLOCK" in row and "WRITE" in row and row[-3].rpartition(":")[2] == inode for row in rows)


def release(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
