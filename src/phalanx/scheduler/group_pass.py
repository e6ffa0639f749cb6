"""Looks at the unfinished groups, pipelines and schedules of a home in every pass of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.home.group_folder import ARRAY, PACKED, GroupFolder, allocation_id
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.unfinished import UNFINISHED_WHOLES
from phalanx.store import Run
from phalanx.store.kinds import GROUP, PIPELINE, SCHEDULE

if TYPE_CHECKING:
    from phalanx.scheduler.journaled_run import JournaledRun, JournaledRuns


class GroupPass:
    """Imports what they need with the first of them: it is slow, and most homes have none. `inside`: the group whose
    job this scheduler is part of."""

    def __init__(self, ledger: Ledger, inside: str | None = None) -> None:
        self.ledger = ledger
        self.inside = inside
        self.groups: JournaledRuns | None = None
        self.found: list[Run] = []
        self.trials: dict[str, str] = {}  # by group: how its trials become jobs

    def look(self) -> None:
        """Read which of them there are. Called first in a pass."""
        self.found = self.ledger.store.runs(UNFINISHED_WHOLES, sort="created_at", limit=None)
        self.trials = {group.id: self._trials(group.id) for group in self.found if group.kind == GROUP}

    def _trials(self, group_id: str) -> str:
        known = self.trials.get(group_id)
        if group_id == self.inside:
            return ""  # its trials are processes
        return GroupFolder(self.ledger.home.run(group_id).path).trials if known is None else known

    def is_packed(self, run: Run) -> bool:
        """Whether a run is a trial that a job looks after: this scheduler only reads it."""
        return self.trials.get(run.group or "") == PACKED and run.id != allocation_id(run.group or "")

    def makes_arrays(self, group_id: str | None) -> bool:
        """Whether the trials of a group are tasks of arrays."""
        return self.trials.get(group_id or "") == ARRAY

    @property
    def limits(self) -> dict[str, int]:
        """How many trials of each group with arrays may run at the same time."""
        active = self.groups.active if self.groups is not None else {}
        return {group_id: group.limit for group_id, group in active.items() if self.makes_arrays(group_id)}

    def _kind_of(self, whole: Run) -> type[JournaledRun]:
        if whole.kind == PIPELINE:
            from phalanx.scheduler.pipelines.active import ActivePipeline

            return ActivePipeline
        if whole.kind == SCHEDULE:
            from phalanx.scheduler.pipelines.schedule import ActiveSchedule

            return ActiveSchedule
        if self.trials.get(whole.id) == PACKED:
            from phalanx.scheduler.packed.group import PackedGroup

            return PackedGroup
        from phalanx.scheduler.groups import ActiveGroup

        return ActiveGroup

    def run(self, guarded: Callable[[Callable[[Run], None], Run, None], Any]) -> int:
        """Take the next step of each of them. Returns their number."""
        if self.found and self.groups is None:
            from phalanx.scheduler.journaled_run import JournaledRuns

            self.groups = JournaledRuns(self.ledger, self._kind_of)
        blocked = self.ledger.store.blocked() if self.found else ()
        for group in self.found:
            assert self.groups is not None
            if group.id not in blocked or self.ledger.home.run(group.id).stop_reason() is not None:
                guarded(self.groups.reconcile, group, None)
        return len(self.found)

    def close(self) -> None:
        if self.groups is not None:
            self.groups.close()
