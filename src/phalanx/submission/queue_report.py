"""The queue as people see it: positions, and why each run waits. One rule for the CLI, REST and the page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from phalanx.backends.contract import LOCAL_BACKENDS
from phalanx.backends.local.capacity import NOTHING, Capacity, excess, requested_by
from phalanx.home.home import Home
from phalanx.naming import QUEUED_STATUSES
from phalanx.store import Run
from phalanx.stored_plan import PlanDamaged, read_plan


def requested(home: Home, run: Run) -> Capacity:
    """The request of a run, from its plan."""
    try:
        return requested_by(read_plan(home.run(run.id).path))
    except (OSError, PlanDamaged):
        return NOTHING


class QueueReport:
    """`active`: every run that has not ended, in start order; `blocked`: the ids of those that wait for other runs, and
    let all pass; `room`: the capacity of this machine."""

    def __init__(
        self,
        active: Sequence[Run],
        blocked: Collection[str],
        requested: Callable[[Run], Capacity],
        room: Capacity,
    ) -> None:
        self.room = room
        self.requested = requested
        self.used = NOTHING  # by runs of this machine that have left the queue
        self.places: dict[str, int] = {}  # from 1, in the queue of this machine or of each engine
        counts: dict[str, int] = {}
        for run in active:
            where = "" if run.backend in LOCAL_BACKENDS else run.backend
            if run.id in blocked:
                continue
            if run.status in QUEUED_STATUSES:
                self.places[run.id] = counts[where] = counts.get(where, 0) + 1
            elif not where:
                self.used += requested(run)

    @property
    def free(self) -> Capacity:
        cpus, memory_mib, gpus = (max(0, mine - theirs) for mine, theirs in zip(self.room, self.used, strict=True))
        return Capacity(cpus, memory_mib, int(gpus))

    def why(self, run: Run) -> str | None:
        """Why a queued run waits; None if it is not queued, or waits for other runs (`phalanx run --after`)."""
        place = self.places.get(run.id)
        if place is None:
            return None
        if run.backend not in LOCAL_BACKENDS:
            return f"waits for its submission to {run.backend}"
        if place > 1:
            return f"waits for {place - 1:,} {'run' if place == 2 else 'runs'} ahead in the queue"
        missing = excess(self.requested(run), self.free)
        if missing is None or self.used == NOTHING:
            return "waits for the scheduler to start it"
        return f"waits for free resources on this machine: requests {missing} free"
