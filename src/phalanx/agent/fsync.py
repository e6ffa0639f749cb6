"""Syncs tracked data to disk every second, so that a power loss costs at most one second.

Runs in a separate thread, because a disk may be slow, and the replica must be watched meanwhile.
"""

from __future__ import annotations

import os
import threading
import time

EVERY_S = 0.8
TRACKED = (".points", ".events")


def tracked_files(folder: str) -> dict[str, int]:
    """The sizes of the tracked files, by path."""
    try:
        with os.scandir(folder) as entries:
            return {entry.path: entry.stat().st_size for entry in entries if entry.name.endswith(TRACKED)}
    except OSError:
        return {}


def keep_syncing(folder: str) -> None:
    """Sync until the process ends."""
    threading.Thread(target=_work, args=(folder,), daemon=True).start()


def _work(folder: str) -> None:
    before: dict[str, int] = {}
    while True:
        sizes = tracked_files(folder)
        for path, size in sizes.items():
            if before.get(path) != size:
                sync(path)
        before = sizes
        time.sleep(EVERY_S)


def sync(path: str) -> None:
    """Sync a file, also data of other writers: the kernel syncs whole files."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
