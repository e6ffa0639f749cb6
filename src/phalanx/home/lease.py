"""The lease to schedule a home: one holder at a time."""

from __future__ import annotations

import fcntl
import os

from phalanx.errors import CallError
from phalanx.home.home import Home


class Lease:
    """The lease to schedule the runs of a home. The kernel releases it when the holder dies."""

    def __init__(self, home: Home) -> None:
        path = home.path / "scheduler.lock"
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise CallError(f"cannot open {path}: {(fault.strerror or str(fault)).lower()}") from None
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
