"""Atomic file writes, and folders that only their owner can read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def make_private(folder: Path, below: Path) -> None:
    """Create a folder and those between it and `below`: `mkdir(parents=True)` would leave them open to others."""
    for missing in reversed([folder, *folder.parents][: len(folder.relative_to(below).parts)]):
        missing.mkdir(mode=0o700, exist_ok=True)


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a private file atomically, even if the process is killed. Without `sync` a power failure in the next
    seconds may lose it: acceptable for data that only matters while the machine is up, and many times faster."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    is_done = False
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        draft.replace(path)
        is_done = True
    finally:
        if not is_done:  # the descriptor number could belong to another thread afterwards
            draft.unlink(missing_ok=True)
