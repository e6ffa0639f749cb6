"""Looks at the unfinished groups of a home in every pass of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.home.group_folder import GroupFolder, allocation_id
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.unfinished import UNFINISHED_GROUPS
from phalanx.store import Run

if TYPE_CHECKING:
    from phalanx.scheduler.groups import ActiveGroup, RunningGroups


class GroupPass:
    """Imports what groups need with the first of them: it is slow, and most homes have none. `inside`: the group whose
    job this scheduler is part of."""

    def __init__(self, ledger: Ledger, inside: str | None = None) -> None:
        self.ledger = ledger
        self.inside = inside
        self.groups: RunningGroups | None = None
        self.found: list[Run] = []
        self.packed: dict[str, bool] = {}  # by group

    def look(self) -> None:
        """Read which groups there are. Called first in a pass."""
        self.found = self.ledger.store.runs(UNFINISHED_GROUPS, sort="created_at", limit=None)
        self.packed = {group.id: self._is_packed(group.id) for group in self.found}

    def _is_packed(self, group_id: str) -> bool:
        known = self.packed.get(group_id)
        if known is not None or group_id == self.inside:
            return bool(known)
        return GroupFolder(self.ledger.home.run(group_id).path).is_packed

    def is_packed(self, run: Run) -> bool:
        """Whether a run is a trial that a job looks after: this scheduler only reads it."""
        return bool(run.group and self.packed.get(run.group)) and run.id != allocation_id(run.group or "")

    def _kind_of(self, group_id: str) -> type[ActiveGroup]:
        if self.packed.get(group_id):
            from phalanx.scheduler.packed.group import PackedGroup

            return PackedGroup
        from phalanx.scheduler.groups import ActiveGroup

        return ActiveGroup

    def run(self, guarded: Callable[[Callable[[Run], None], Run, None], Any]) -> int:
        """Take the next step of each group. Returns the number of groups."""
        if self.found and self.groups is None:
            from phalanx.scheduler.groups import RunningGroups

            self.groups = RunningGroups(self.ledger, self._kind_of)
        blocked = self.ledger.store.blocked() if self.found else ()
        for group in self.found:
            assert self.groups is not None
            if group.id not in blocked or self.ledger.home.run(group.id).stop_reason() is not None:
                guarded(self.groups.reconcile, group, None)
        return len(self.found)

    def close(self) -> None:
        if self.groups is not None:
            self.groups.close()
