"""Executors: they run attempts on this machine, or on the machines of an engine.

The scheduler uses both in the same way, and both read the agents' files in a run's folder. They differ in how they
check that a silent agent is alive, and in how they end it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Container, Mapping, Sequence
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
from phalanx.tracking.external_folder import BACKEND as OUTSIDE

MOST_REMEMBERED = 100_000  # runs whose executor is cached


class Executor(Protocol):
    is_here: bool

    @property
    def is_poll_due(self) -> bool:
        """Whether to poll in this pass."""

    def poll(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> Collection[str]:
        """Update the states of these runs. `is_over`: whether a run of this home is finished. Returns those whose jobs
        have changed."""

    def pause_s(self, attempt_folder: AttemptFolder) -> float:
        """How long to wait before the next look at a run."""

    def is_free(self, attempt_folder: AttemptFolder) -> bool:
        """Whether this attempt can start: the previous one has ended, and not too many are being started."""

    @property
    def is_full(self) -> bool:
        """Whether so many attempts are being started that others have to wait."""

    def is_resolved(self, attempt_folder: AttemptFolder, *, is_stopping: bool) -> bool:
        """Whether it is certain which job runs an attempt, or that there is none. Before, it is neither started nor
        stopped nor concluded. `is_stopping`: it must not be started any more."""

    def release(self, attempt_folder: AttemptFolder) -> bool:
        """Cancel what may restart a run that waits for its next attempt. False if that has not been accepted yet."""

    def is_restarted(self, attempt_folder: AttemptFolder) -> bool:
        """Whether the engine itself runs the next attempt, or will."""

    def restart_reason(self, attempt_folder: AttemptFolder) -> str | None:
        """Why the engine restarts an attempt; None until the engine has said so."""

    def verdict(self, attempt_folder: AttemptFolder) -> Observation | None:
        """How an attempt ended; None while it may still be restarted."""

    def has_begun(self, run: Run, attempt_folder: AttemptFolder) -> bool:
        """Whether the start of an attempt without visible agents was made, so that agents may still appear."""

    def observe(self, attempt_folder: AttemptFolder) -> dict[str, ReplicaState]:
        """The current state of each replica."""

    def may_appear(self, run: Run, seen: Mapping[str, ReplicaState], since: float) -> bool:
        """Whether missing agents may still start."""

    def signal(
        self,
        attempt_folder: AttemptFolder,
        seen: Mapping[str, ReplicaState],
        number: signal.Signals,
        *,
        all_of_it: bool,
    ) -> None:
        """Signal the running replicas; `all_of_it`: end the whole run."""

    def sweep(self, run: Run) -> None:
        """Kill the processes that are left of a run."""


class Executors:
    """All executors, each created for its first run."""

    def __init__(self, home: Home) -> None:
        self.home = home.path
        self.arrays = home.arrays
        self.here = LocalExecutor(home)
        self.known: list[tuple[str, Any, EngineExecutor]] = []  # by backend and target
        self.of_runs: dict[str, EngineExecutor] = {}
        self.connections = Connections()

    def close(self) -> None:
        """Close the connections and threads of all engines, and the process that forks agents. Submissions without a
        result are found again later."""
        for executor in self.elsewhere:
            executor.close()
        self.here.close()
        self.connections.close()

    def of(self, run: Run) -> Executor:
        """The executor of a run. Raises CallError if its backend is not installed."""
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
        target = backend.target_of_run(self.home, self.home / "runs" / run.id)
        for name, other, executor in self.known:
            if (name, other) == (run.backend, target):
                return executor
        engine = backend.engine(target, self.connections)
        if engine is None:
            return None
        executor = EngineExecutor(engine, self.arrays)
        self.known.append((run.backend, target, executor))
        return executor

    @property
    def elsewhere(self) -> list[EngineExecutor]:
        return [executor for _, _, executor in self.known]

    def sweep(self, run: Run) -> None:
        """Kill the processes that a run's agents left. Those of a run that is only tracked belong to its user."""
        if run.backend != OUTSIDE:
            self.of(run).sweep(run)

    def poll(
        self,
        runs: Sequence[Run],
        folder_of: Callable[[Run], AttemptFolder],
        watched: Container[str],
        is_over: Callable[[str], bool],
    ) -> set[str]:
        """Poll each executor once for all its runs that are watched. `is_over`: whether a run of this home is finished.
        Returns those whose jobs have changed."""
        changed: set[str] = set()
        executors: tuple[tuple[Executor | None, Executor], ...] = (
            *((executor, executor) for executor in self.elsewhere),
            (None, self.here),
        )
        for known, executor in executors:
            if executor.is_poll_due:
                its = (run for run in runs if self.of_runs.get(run.id) is known and run.id in watched)
                changed.update(executor.poll({run.id: folder_of(run) for run in its}, is_over))
        return changed

    def finish_pass(self, limits: Mapping[str, int], started: Sequence[Run]) -> bool:
        """Cancel the jobs that were stopped in this pass, and submit the arrays that are due. `limits`: how many runs
        of a group with arrays may run at the same time. True if the next pass will submit more."""
        is_collecting = False
        for executor in self.elsewhere:
            executor.cancel_jobs()
            runs: dict[str, list[AttemptFolder]] = {group: [] for group in limits}
            for run in started if limits else ():
                if run.group in runs and self.of_runs.get(run.id) is executor:
                    runs[run.group].append(AttemptFolder(self.home / "runs" / run.id, run.id, run.attempt, ()))
            is_collecting |= executor.run_arrays(limits, runs)
        return is_collecting
