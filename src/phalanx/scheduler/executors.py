"""Where runs are: on this machine, or with an engine that has machines of its own.

The scheduler asks the same of both. What agents leave in a run's folder counts for both; only whether an agent that
left no word is still alive, and how to tell it to end, each place knows for itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from phalanx.backends.contract import (
    LOCAL_BACKENDS,
    Connections,
    Observation,
)
from phalanx.home.attempts import AttemptFolder, ReplicaState
from phalanx.home.home import Home
from phalanx.scheduler.engine_executor import EngineExecutor
from phalanx.scheduler.local_executor import LocalExecutor
from phalanx.store import Run

MOST_REMEMBERED = 100_000  # runs of which it is known where they are


class Executor(Protocol):
    is_here: bool

    def poll(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> None:
        """Learn what there is to know of the runs that were started there."""

    def pause_s(self, seat: AttemptFolder) -> float:
        """How long a run need not be looked at again."""

    def is_free(self, seat: AttemptFolder) -> bool:
        """Whether the attempt before this one is out of the way."""

    def restart_reason(self, seat: AttemptFolder) -> str | None:
        """Why, when the place itself starts an attempt again."""

    def verdict(self, seat: AttemptFolder) -> Observation | None:
        """What the place says of the end of an attempt; None when it may yet start it again."""

    def has_begun(self, run: Run, seat: AttemptFolder) -> bool:
        """Of a run whose agents have not come: whether they will, or may have begun already."""

    def observe(self, seat: AttemptFolder) -> dict[str, ReplicaState]:
        """What is seen of each replica now."""

    def may_appear(self, run: Run, seen: Mapping[str, ReplicaState], since: float) -> bool:
        """Whether agents that are missing may still come."""

    def signal(
        self, seat: AttemptFolder, seen: Mapping[str, ReplicaState], number: signal.Signals, *, all_of_it: bool
    ) -> None:
        """Tell what runs to end; `all_of_it`: nothing of the run is to go on."""

    def sweep(self, run: Run) -> None:
        """End whatever is left of a run."""


class Executors:
    """All places, each made when the first run asks for it."""

    def __init__(self, home: Home) -> None:
        self.home = home.path
        self.here = LocalExecutor(home)
        self.known: list[tuple[str, Any, EngineExecutor]] = []  # by backend, and what is known of where its jobs go
        self.of_runs: dict[str, EngineExecutor] = {}
        self.connections = Connections()

    def close(self) -> None:
        """End what engines keep open, and all threads. What was submitted and not answered is found again later."""
        for there in self.elsewhere:
            there.close()
        self.connections.close()

    def of(self, run: Run) -> Executor:
        """Raises CallError when nobody is installed who knows the place."""
        if run.backend in LOCAL_BACKENDS:
            return self.here
        if run.id not in self.of_runs:
            found = self._found(run)
            if found is None:
                return self.here
            if len(self.of_runs) >= MOST_REMEMBERED:
                self.of_runs.clear()
            self.of_runs[run.id] = found
        return self.of_runs[run.id]

    def _found(self, run: Run) -> EngineExecutor | None:
        from phalanx import backends

        backend = backends.find(run.backend)
        place = backend.target_of_run(self.home, self.home / "runs" / run.id)
        for name, other, there in self.known:
            if (name, other) == (run.backend, place):
                return there
        engine = backend.engine(place, self.connections)
        if engine is None:
            return None
        there = EngineExecutor(engine)
        self.known.append((run.backend, place, there))
        return there

    @property
    def elsewhere(self) -> list[EngineExecutor]:
        return [there for _, _, there in self.known]

    def poll(self, runs: Iterable[tuple[Run, AttemptFolder]], is_over: Callable[[str], bool]) -> None:
        """Each place is asked once for all its runs. `is_over`: whether a run of this home is."""
        seats: dict[EngineExecutor | None, dict[str, AttemptFolder]] = {there: {} for there in (None, *self.elsewhere)}
        for run, seat in runs:
            seats[self.of_runs.get(run.id)][run.id] = seat
        for there in self.elsewhere:
            there.poll(seats[there], is_over)
        self.here.poll(seats[None], is_over)
