"""Looks at the unfinished groups of a home in every pass of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.scheduler.ledger import Ledger
from phalanx.store import Run

if TYPE_CHECKING:
    from phalanx.scheduler.groups import RunningGroups

GROUP = "group"  # the kind of its row, beside the rows of its runs
UNFINISHED = f"kind:{GROUP}, status:created|resuming|warning|running"
AT_WORK = f"kind:{GROUP}, status:created|resuming|running"  # not paused


class GroupPass:
    """Imports what groups need with the first of them: it is slow, and most homes have none."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.groups: RunningGroups | None = None

    def run(self, guarded: Callable[[Callable[[Run], None], Run, None], Any]) -> int:
        """Take the next step of each group. Returns the number of groups."""
        found = self.ledger.store.runs(UNFINISHED, sort="created_at", limit=None)
        if found and self.groups is None:
            from phalanx.scheduler.groups import RunningGroups

            self.groups = RunningGroups(self.ledger)
        for group in found:
            assert self.groups is not None
            guarded(self.groups.reconcile, group, None)
        return len(found)

    def close(self) -> None:
        if self.groups is not None:
            self.groups.close()
