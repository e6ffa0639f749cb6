"""Cancellations of jobs: those of a pass are made in one call, and repeated while the jobs go on."""

from __future__ import annotations

import time
from collections.abc import Collection

from phalanx.scheduler.engine_view import EngineView

AGAIN_S = 10.0


class Cancellations:
    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.accepted: set[str] = set()
        self._due: list[str] = []  # in this pass
        self._asked_at: dict[str, float] = {}

    def add(self, handle: str) -> None:
        """Cancel a job at the end of this pass, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._asked_at.get(handle, float("-inf")) >= AGAIN_S:
            self._asked_at[handle] = now
            self._due.append(handle)

    def make(self) -> list[str]:
        """Cancel the jobs of this pass, and return them."""
        handles, self._due = self._due, []
        if handles and self.view.cancel(handles):
            self.accepted.update(handles)
        return handles

    def keep(self, handles: Collection[str]) -> None:
        """Forget all other jobs."""
        self.accepted.intersection_update(handles)
        self._asked_at = {handle: at for handle, at in self._asked_at.items() if handle in handles}
