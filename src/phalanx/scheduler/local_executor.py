"""Executor for replicas that are processes of this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx.agent import processes
from phalanx.agent.fork_server import ForkServer
from phalanx.agent.supervisor import NO_SPACE
from phalanx.backends.agent_zip import AgentArchives
from phalanx.backends.contract import ENDED, Observation
from phalanx.backends.local import runner
from phalanx.ends import Cause
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState
from phalanx.home.home import Home
from phalanx.store import Run

LOOK_FOR_VERSION_S = 1.0  # how often to look whether the sources have changed
GRACE_S = 10.0  # between TERM and KILL
STARTING_PATIENCE_S = 60.0  # for a started agent to write its file
LOOK_FOR_AGENTS_S = 0.5  # how often to look for starting agents
FULL_S = 2.0  # from the end of a command that found a full disk until the scheduler notices


class LocalStart(NamedTuple):
    """An attempt to be started on a machine. `facts`: more for its facts file."""

    attempt_folder: AttemptFolder
    working: Path
    environment: Mapping[str, str]
    gpus: Mapping[str, list[str]]
    facts: Mapping[str, Any] = MappingProxyType({})


class LocalExecutor:
    """Runs attempts on this machine."""

    is_here = True
    is_full = False

    def __init__(self, home: Home) -> None:
        self.home = home
        self.looked_for: dict[str, float] = {}
        self.fork_server = ForkServer()
        self.requested: dict[str, int] = {}  # starts without a result
        self.archives: AgentArchives | None = None
        self.look_at = 0.0  # for a new version of the archives

    def close(self) -> None:
        self.fork_server.close()

    def start(self, asked: LocalStart) -> None:
        """Start the replicas of an attempt; `started` has the result. Raises OSError if nothing was started."""
        if self.archives is None or time.monotonic() >= self.look_at or not self.archives.agent.exists():
            self.archives = AgentArchives.of(self.home.agents)
            self.look_at = time.monotonic() + LOOK_FOR_VERSION_S
        self.requested[asked.attempt_folder.run_id] = runner.start(
            asked.attempt_folder,
            working=asked.working,
            environment=asked.environment,
            gpus=asked.gpus,
            grace_s=GRACE_S,
            archives=self.archives,
            fork_server=self.fork_server,
            more=asked.facts,
        )

    def started(self) -> dict[str, Exception | None]:
        """Wait until all starts have a result. By run: None, or the fault; some replicas may have been started then:
        ForkServerLost, CalledProcessError, TimeoutExpired."""
        requested, self.requested = self.requested, {}
        answers = self.fork_server.answers(runner.LAUNCH_S) if requested else {}
        return {run_id: answers[number] for run_id, number in requested.items()}

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait until an agent has ended. False if none has within this time."""
        return self.fork_server.wait_for_end(timeout_s)

    @property
    def is_poll_due(self) -> bool:
        return bool(self.looked_for)

    def poll(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> Collection[str]:  # noqa: ARG002
        self.looked_for = {run_id: at for run_id, at in self.looked_for.items() if run_id in runs}
        return ()

    def pause_s(self, attempt_folder: AttemptFolder) -> float:  # noqa: ARG002
        return 0.0

    def is_free(self, attempt_folder: AttemptFolder) -> bool:  # noqa: ARG002
        return True

    def is_resolved(self, attempt_folder: AttemptFolder, *, is_stopping: bool) -> bool:  # noqa: ARG002
        return True  # `has_begun` finds what a killed scheduler left

    def release(self, attempt_folder: AttemptFolder) -> bool:  # noqa: ARG002
        return True

    def is_restarted(self, attempt_folder: AttemptFolder) -> bool:  # noqa: ARG002
        return False

    def restart_reason(self, attempt_folder: AttemptFolder) -> str | None:  # noqa: ARG002
        return None

    def verdict(self, attempt_folder: AttemptFolder) -> Observation | None:
        return None if runner.held(attempt_folder) else Observation(ENDED)

    def has_begun(self, run: Run, attempt_folder: AttemptFolder) -> bool:
        """A scheduler may have been killed during the start: kill the processes that it left. True if an agent had
        already started."""
        runner.sweep(run.id)
        return any(observed.state != ReplicaPhase.ABSENT for observed in runner.observe(attempt_folder).values())

    def observe(self, attempt_folder: AttemptFolder) -> dict[str, ReplicaState]:
        return {name: self._with_full_disk(observed) for name, observed in runner.observe(attempt_folder).items()}

    def _with_full_disk(self, observed: ReplicaState) -> ReplicaState:
        """Add the cause: the scheduler may have freed space on a full disk before the agent checked."""
        end = observed.end
        if end is None or end.cause != Cause.ERROR or end.message.endswith(NO_SPACE):
            return observed
        full_at = self.home.full_at()
        if full_at is None or not (end.started_at or 0.0) <= full_at <= end.ended_at + FULL_S:
            return observed
        return observed._replace(end=end._replace(message=end.message + NO_SPACE))

    def may_appear(self, run: Run, seen: Mapping[str, ReplicaState], since: float) -> bool:
        now = time.monotonic()
        if now < self.looked_for.setdefault(run.id, now + LOOK_FOR_AGENTS_S):
            return True
        self.looked_for[run.id] = now + LOOK_FOR_AGENTS_S
        return now - since <= STARTING_PATIENCE_S and self.is_starting(run, seen)

    def is_starting(self, run: Run, seen: Mapping[str, ReplicaState]) -> bool:
        """Whether a process may still become an agent."""
        return runner.is_starting(run.id, seen.values())

    def signal(
        self,
        attempt_folder: AttemptFolder,
        seen: Mapping[str, ReplicaState],
        number: signal.Signals,
        *,
        all_of_it: bool,
    ) -> None:
        runner.signal_replicas(seen, number)
        if all_of_it and all(observed.end is not None for observed in seen.values()):
            processes.send(runner.held(attempt_folder), signal.SIGTERM)

    def sweep(self, run: Run) -> None:
        runner.sweep(run.id)
