"""The right to schedule a home: one holder at a time."""

from __future__ import annotations

import fcntl
import os

from phalanx.errors import disk_fault
from phalanx.home.home import Home


class Lease:
    """The right to schedule the runs of a home. The kernel takes it back from whoever dies."""

    def __init__(self, home: Home) -> None:
        path = home.path / "scheduler.lock"
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise disk_fault(f"cannot open {path}", fault) from None
        self.held = False

    def take(self) -> bool:
        if not self.held:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            self.held = True
        return True

    def release(self) -> None:
        if self.held:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            self.held = False

    def close(self) -> None:
        os.close(self.descriptor)
