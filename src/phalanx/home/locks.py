"""File locks between processes, which the kernel releases when the holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Returns whether the lock was acquired; always true with `wait`. Raises OSError when the file cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield take(descriptor, wait=wait)
    finally:
        os.close(descriptor)


def take(descriptor: int, *, wait: bool) -> bool:
    """The same for an open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
