"""Where tests put their files: in memory where there is room.

Homes, spools and databases are synced thousands of times in a session, and on a disk most of that is waiting. Suites of
clusters stay on the disk: their nodes are containers with a /dev/shm of their own.
"""

from __future__ import annotations

import os
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes; containers often have 64 MiB
CLUSTERS = ("PHALANX_TEST_SLURM", "PHALANX_TEST_KUBERNETES", "PHALANX_TEST_KUBECONFIG", "PHALANX_TEST_BUILD")


def choose_temp_root() -> None:
    """Name the folder to pytest, unless the caller has named one."""
    if not any(os.environ.get(name) for name in CLUSTERS) and _suits(IN_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def _suits(folder: Path) -> bool:
    try:
        offer = os.statvfs(folder)
    except OSError:
        return False
    runs_programs = not offer.f_flag & os.ST_NOEXEC
    return runs_programs and offer.f_bavail * offer.f_frsize >= ROOM and os.access(folder, os.W_OK)
