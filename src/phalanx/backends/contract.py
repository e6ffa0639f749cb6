"""Engines: places with machines of their own, which take a job, queue it and run it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from phalanx.ends import Cause
from phalanx.errors import CallError, SystemFault
from phalanx.home.attempts import AttemptFolder
from phalanx.plan.model import Plan
from phalanx.tracking.external_folder import BACKEND as OUTSIDE

WAITING, RUNNING, ENDED = "waiting", "running", "ended"
NO_OPTIONS: Mapping[str, str | None] = MappingProxyType({})
LOCAL_BACKENDS = (
    "native",
    "local",
    "mpi",
    "notebook",
    "lab",
    "other",
    OUTSIDE,
)  # whose replicas are processes of this machine


class Observation(NamedTuple):
    """What an engine says of a job. `why` in plain words: what a waiting one waits for, how an ended one ended, by
    `cause` as ends have it. `run_id` and `attempt` as the job itself carries them: the attempt is that of its first
    start."""

    state: str
    why: str = ""
    cause: Cause = Cause.LOST
    nodes: str = ""
    starts_at: str = ""  # when a waiting one is expected to start
    run_id: str | None = None
    attempt: int = 1


class EngineUnavailable(SystemFault):
    """The engine does not answer now: try again later. A job may have been submitted all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


class JobRejected(CallError):
    """The engine does not take this job, and will not."""


class Closeable(Protocol):
    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Closeable)


class Connections:
    """Long-lived connections of engines, with their threads: opened on first use, shared by all engines that connect to
    the same place, and closed by whoever made this object. A context manager."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Any] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, connect: Callable[[], Connection]) -> Connection:
        with self._lock:
            if key not in self._open:
                self._open[key] = connect()
            found: Connection = self._open[key]
            return found

    def close(self) -> None:
        """End all of them and their threads. A later `get` connects again."""
        with self._lock:
            connections, self._open = list(self._open.values()), {}
        for connection in connections:
            connection.close()

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(Protocol):
    """Made by `Backend.engine`. Every method but `preflight` raises Unavailable when the engine does not
    answer."""

    name: str
    submit_interval_s: float  # at least so long between two submissions, where a site wants it
    slowest_poll_s: float  # how often it is asked at the least: rarely, where many share it
    makes_room: bool  # `submit` itself removes what is left of the attempt before, and done twice is done once
    needs_token: bool  # its replicas may have to reach a server of ours: `submit` is given what for

    def preflight(self, environment: Mapping[str, str]) -> None:
        """Called before a run is submitted, with the environment that `submit` will get. Raises CallError when no job
        can be submitted from this machine now: what is missing, where, and what to do."""

    def submit(  # noqa: PLR0913 - what makes a job
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,
        *,
        working: Path,
        environment: Mapping[str, str],
    ) -> str:
        """The handle of a new job. `first`: the attempt that the run's time is counted from. Raises Refused."""

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        """All jobs of ours that it knows, in one call; of those that it has forgotten what its records say. A handle
        that is not in the answer is not known any more."""

    def history(self, run_id: str) -> dict[str, Observation]:
        """The jobs of one run, also those that are long over."""

    def why_restarted(self, handle: str) -> str:
        """Why the engine started a job again, in plain words."""

    def cancel(self, handles: Collection[str]) -> None:
        """Ends jobs; those that are over already are no fault."""

    def log_of(self, folder: Path, handle: str) -> Path:
        """The file with what the script of a job itself said."""

    def fetch(self, seat: AttemptFolder, handle: str) -> None:
        """What lies elsewhere of an attempt, into its folder here. Nothing where all see the same files."""

    def signal(self, seat: AttemptFolder, handle: str, names: Collection[str], number: int) -> None:
        """Have replicas end (SIGTERM), or say where they hang (SIGQUIT)."""

    def refine(self, seen: Observation, lines: Collection[str]) -> Observation:
        """An observation, with what the last lines of that file add to it."""


@dataclass(frozen=True)
class Job:
    """A plan rendered for one backend: the files of a folder, by their paths in it.

    `shown` is the file that says it all by itself, if one does; `start` tells the person how to go on. Beside a job
    that carries the agent belong `job/agent.pyz` and `job/tracking.zip`. `completed`, of one that goes where no folder
    of ours is, gives it with all of that inside, and with an archive of the code where it takes one.
    """

    files: Mapping[str, str]
    start: str
    shown: str | None = None
    carries_agent: bool = False
    takes_code: bool = False
    completed: Callable[[bytes | None], Job] | None = None


class Backend(Protocol):
    shares_files: bool  # whether its replicas see the folders of this home

    def target(
        self, home: Path, plan: Plan | None = None, *, options: Mapping[str, str | None] = NO_OPTIONS, ask: bool = False
    ) -> Any:
        """What is known of where its jobs go, for `render` and `engine`: the profile of a site, or a cluster's offer.
        `options`: as the command line names it; `ask`: the place itself may be asked. Raises CallError."""

    def target_of_run(self, home: Path, run_folder: Path) -> Any:
        """The same for a run that was rendered before."""

    def render(self, plan: Plan, place: Any = None) -> Job:
        """The job of a plan, at a place where one is known. Pure: no file is written and nothing is asked of the
        machine. Raises CallError for what the backend cannot place."""

    def engine(self, place: Any, connections: Connections) -> Engine | None:
        """Who runs such jobs; None for a backend whose replicas are processes of this machine. What the engine keeps
        open, it opens through `connections`, whose owner closes it."""
