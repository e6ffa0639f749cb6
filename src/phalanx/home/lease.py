"""The lease to schedule a home: one holder at a time."""

from __future__ import annotations

import os

from phalanx import locks
from phalanx.errors import disk_fault
from phalanx.home.home import Home

LOCK = "scheduler.lock"


class Lease:
    """The lease to schedule the runs of a home. The kernel releases it when the holder dies."""

    def __init__(self, home: Home) -> None:
        path = home.path / LOCK
        try:
            self.descriptor = locks.open_lock(path)
        except OSError as fault:
            raise disk_fault(f"cannot open {path}", fault) from None
        self.held = False

    @staticmethod
    def seems_taken(home: Home) -> bool:
        """A guess, for those who must not disturb the holder."""
        return locks.seems_held(home.path / LOCK)

    def take(self) -> bool:
        if not self.held:
            try:
                self.held = locks.take(self.descriptor, wait=False)
            except OSError:
                return False
        return self.held

    def release(self) -> None:
        if self.held:
            locks.release(self.descriptor)
            self.held = False

    def close(self) -> None:
        os.close(self.descriptor)
