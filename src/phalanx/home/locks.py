"""One process at a time: a lock that the kernel takes back from whoever dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether it is ours; always so with `wait`. Raises OSError when the file cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield take(descriptor, wait=wait)
    finally:
        os.close(descriptor)


def take(descriptor: int, *, wait: bool) -> bool:
    """The same of a file that is open."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
