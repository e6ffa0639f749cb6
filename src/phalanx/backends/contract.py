"""The contract of a backend: a place with its own machines that takes a job, queues it and runs it.

A backend is a package with one entry point in the group `phalanx.backends` that names an instance of `Backend`. Five
methods must be written: `Backend.render` and `Backend.engine`, `Engine.submit`, `Engine.observe` and `Engine.cancel`.
All others have a default. `docs/develop/write-a-backend.md` has a complete example.

    Plan --render--> Job --submit--> handle --observe--> Observation

Errors that these methods raise:

    CallError           the user must act: the file or the call asks for something that this backend cannot do
    EngineUnavailable   the engine does not respond now: the scheduler retries
    JobRejected         the engine does not accept this job: the run fails
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from phalanx import run_paths
from phalanx.ends import Cause
from phalanx.errors import CallError, SystemFault
from phalanx.home import attempts
from phalanx.home.array_folder import ArrayTask
from phalanx.home.attempts import AttemptFolder
from phalanx.plan.model import Plan
from phalanx.sites.findings import ERROR, SiteFinding
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
)  # replicas are processes of this machine


class Observation(NamedTuple):
    """The state of a job, as its engine reports it."""

    state: str  # WAITING (queued), RUNNING or ENDED
    why: str = ""  # in plain words: what a waiting job (or a part of a running one) waits for, how an ended one ended
    cause: Cause = Cause.LOST  # of an ended one: FINISHED, ERROR, MEMORY, TIMEOUT, STOPPED, or LOST if unknown
    nodes: str = ""  # where it runs, separated by commas
    starts_at: str = ""  # when a waiting one is expected to start
    run_id: str | None = None  # as stored in the job
    attempt: int = 1  # of its first start: an engine may start a job again
    is_building: bool = False  # of a waiting one: its image is being built


class TunnelRequest(NamedTuple):
    """A port of the user's machine that shall lead to an address of a replica's machine."""

    address: str  # the path of a unix socket, or HOST:PORT
    port: int
    login: str  # this machine, as ssh reaches it: USER@HOST
    is_reverse: bool = False  # the machines of replicas accept no ssh


class TunnelStep(NamedTuple):
    """A command that a user runs, and stays, so that a port of the user's machine leads to a replica."""

    where: str  # the machine to run it on, in words
    command: str


class SubmissionStart(NamedTuple):
    """When and where a call of `Engine.submit` or `submit_array` began."""

    at: float  # seconds since the epoch
    boot: str  # the machine, since it was started: `phalanx.agent.processes.boot_id`
    array: str = ""  # the folder of the array that the attempt is a task of


class JobDependency(NamedTuple):
    """A job of the same engine that must end before another one starts."""

    handle: str
    must_succeed: bool  # its script exits with 0; otherwise any end will do


class EngineUnavailable(SystemFault):
    """The engine does not respond now: retry later. A job may have been submitted nevertheless."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


class TooManyTasks(EngineUnavailable):
    """The engine does not accept so many tasks of an array, or not now: retry with fewer."""


class JobRejected(CallError):
    """The engine rejects this job permanently."""


class Closeable(Protocol):
    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Closeable)


class Connections:
    """Long-lived connections of engines, with their threads: opened on first use, shared by all engines that connect to
    the same place, and closed by the owner of this object. A context manager."""

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
        """Close all connections and their threads. A later `get` connects again."""
        with self._lock:
            connections, self._open = list(self._open.values()), {}
        for connection in connections:
            connection.close()

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(ABC):
    """Submits, observes and cancels jobs at one target. Made by `Backend.engine`.

    A *handle* is the text by which the engine finds a job again: `NAME:ID`. It is stored in the run's folder and must
    stay valid after a restart of this process. An *attempt* is one start of a run: 1, 2, …
    """

    name: str  # of the backend
    submit_interval_s: float = 0.0  # minimum time between two submissions
    slowest_poll_s: float = 30.0  # `observe` is called at least this often while jobs exist
    makes_room: bool = False  # `submit` removes what is left of the previous attempt, and is idempotent
    needs_token: bool = False  # replicas may report to a Phalanx server: `submit` gets PHALANX_RUN_TOKEN

    @abstractmethod
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
        """Submit one attempt of a run and return the handle of the job.

        `folder` is the run's folder, with the files of `Backend.render` in it. `working` is the folder in which the
        command runs, `environment` the variables of the submitting shell. `first` is the attempt from which the time
        of the run is counted. The job must carry `run_id` and `attempt` in such a way that `observe` can return them,
        so that a job whose handle was lost is found again. Calls come from several threads.

        Raises EngineUnavailable (retried later) and JobRejected (the run fails with this message).
        """

    @abstractmethod
    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        """Return the state of all jobs of this user that the engine knows, by handle, in one call.

        `handles` are the jobs that the scheduler waits for. For one of these that has left the queue, return how it
        ended (state ENDED) as long as any record of it exists. A handle that is missing in the result is unknown; after
        a minute it counts as lost. Must be quick: it is called every few seconds for all runs together.

        Raises EngineUnavailable.
        """

    @abstractmethod
    def cancel(self, handles: Collection[str]) -> None:
        """End these jobs, waiting or running. Jobs that have ended or are unknown are not an error.

        Replicas get SIGTERM and some seconds before they are killed. Returns without waiting for the end.

        Raises EngineUnavailable.
        """

    def preflight(self, environment: Mapping[str, str]) -> None:  # noqa: B027
        """Check that jobs can be submitted from this machine now. Called before anything of a run is written, with the
        environment that `submit` will get.

        Default: no check. Raises CallError: what is missing, where, and what to do.
        """

    def is_submitting(self, run_id: str, attempt: int, start: SubmissionStart) -> bool:  # noqa: ARG002
        """Whether a `submit` of a process that was killed may still create the job: a command that it started may
        outlive it. While this is true, the attempt is neither submitted again nor stopped.

        Default: no. Raises nothing.
        """
        return False

    def array_key(self, folder: Path, working: Path) -> str | None:  # noqa: ARG002
        """What the jobs of runs must have in common to be tasks of one array: from the files in a run's folder. None if
        this one cannot be a task.

        Default: None; then the methods of arrays are not called. Raises OSError.
        """
        return None

    def submit_array(
        self, folder: Path, tasks: Sequence[ArrayTask], at_once: int | None, environment: Mapping[str, str]
    ) -> list[str]:
        """Submit attempts with the same `array_key` as one job, and return a handle for each. `folder` belongs to the
        array; `phalanx.home.array_folder` has the table of its tasks. `at_once`: how many may run at the same time.

        A job must be found again by `observe` as one of `submit` is. Raises EngineUnavailable, TooManyTasks and
        JobRejected.
        """
        raise NotImplementedError

    def limit_array(self, array: str, at_once: int) -> None:
        """Change how many tasks of an array may run at the same time; 0 starts no more. Raises EngineUnavailable."""
        raise NotImplementedError

    def array_of(self, handle: str) -> str | None:  # noqa: ARG002
        """The array that a job is a task of, as `limit_array` takes it. Default: None."""
        return None

    def takes_dependencies(self, folder: Path) -> bool:  # noqa: ARG002
        """Whether the job in a run's folder can wait in the engine's queue for other jobs of the engine.

        Default: no; then the next two methods are not called. Raises OSError.
        """
        return False

    def submit_after(  # noqa: PLR0913
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,
        *,
        working: Path,
        environment: Mapping[str, str],
        after: Sequence[JobDependency],
    ) -> str:
        """The same as `submit`, for a job that starts after others. If that can never happen, the job stays in the
        queue: the scheduler changes its dependencies, or cancels it."""
        raise NotImplementedError

    def change_dependencies(self, handle: str, after: Sequence[JobDependency]) -> None:
        """Replace the dependencies of a waiting job; empty: it may start. A job that has started or ended is not an
        error. Raises EngineUnavailable."""
        raise NotImplementedError

    def history(self, run_id: str) -> dict[str, Observation]:
        """Return all jobs of one run, including those that ended long ago. Used to find a job whose handle was lost.

        Default: those that `observe` knows. Raises EngineUnavailable.
        """
        return {handle: seen for handle, seen in self.observe(()).items() if seen.run_id == run_id}

    def why_restarted(self, handle: str) -> str:  # noqa: ARG002
        """Return why the engine itself restarted a job, in plain words. Only called if the engine does so."""
        return f"{self.name} started it again"

    def log_of(self, folder: Path, handle: str) -> Path:
        """Return the file with the output of the job's own script. Replicas have separate logs.

        Default: `job/ID.out` in the run's folder, with ID the part of the handle after the colon.
        """
        return folder / run_paths.JOB / f"{handle.partition(':')[2]}.out"

    def fetch(self, attempt_folder: AttemptFolder, handle: str) -> None:  # noqa: B027
        """Copy what replicas wrote elsewhere into the attempt's folder. Called often.

        Default: nothing, which is right where `Backend.shares_files`. Raises EngineUnavailable (retried later).
        """

    def signal(self, attempt_folder: AttemptFolder, handle: str, names: Collection[str], number: int) -> None:  # noqa: ARG002
        """Ask single replicas to end (SIGTERM) or to print where they hang (SIGQUIT).

        Default: a file in the replica's folder, which its agent reads once per second; right where
        `Backend.shares_files`. A signal of the engine would reach every process of the job, and a Python that should
        print where it hangs would be killed by it. Raises EngineUnavailable.
        """
        for name in names:
            attempts.request_end(attempt_folder.folder(name), number)

    def entry(
        self,
        attempt_folder: AttemptFolder,  # noqa: ARG002
        replica: str,  # noqa: ARG002
        argv: Sequence[str],  # noqa: ARG002
        *,
        is_terminal: bool,  # noqa: ARG002
    ) -> list[str]:
        """Return the command of this machine that runs `argv` beside a running replica, with its environment; a shell
        if `argv` is empty. `is_terminal`: it gets a terminal. On the machine of the replica it may call the agent,
        which reads the environment from the replica's process:

            python3 -I -S FOLDER/job/agent.pyz FOLDER/plan.json FOLDER/job/attempt-N.json --enter REPLICA ARGV…

        Default: raises CallError, as it does for a replica that cannot be entered.
        """
        raise CallError(f"the backend {self.name} does not offer to enter replicas: `shell` and `exec` need it")

    def tunnel(
        self,
        attempt_folder: AttemptFolder,  # noqa: ARG002
        replica: str,  # noqa: ARG002
        asked: TunnelRequest,  # noqa: ARG002
    ) -> list[TunnelStep]:
        """Return what users run so that a port of their machine leads to an address of a replica's machine.

        Default: raises CallError, as it does for a replica that does not run.
        """
        raise CallError(f"the backend {self.name} does not offer connections to replicas: notebooks need it")

    def refine(self, seen: Observation, lines: Collection[str]) -> Observation:  # noqa: ARG002
        """Return the observation of an ended job, improved by the last lines of `log_of`. Default: unchanged."""
        return seen


@dataclass(frozen=True)
class Job:
    """A plan rendered for one backend.

    `files` are the files of a folder, by their paths in it. `start` is the command with which a person starts the job
    without Phalanx; `{folder}` in it is replaced by that folder. `shown` is the file that `phalanx plan` prints, if one
    file is enough. With `carries_agent`, the agent is added: `job/agent.pyz` and `job/tracking.zip`.

    For backends that do not share files: `takes_code` if the job contains an archive of the code; `completed` returns
    the complete job for that archive, or for None.
    """

    files: Mapping[str, str]
    start: str
    shown: str | None = None
    carries_agent: bool = False
    takes_code: bool = False
    completed: Callable[[bytes | None], Job] | None = None


class SettingsSchema(Protocol):
    """How a backend validates its section of the file: any shape of `phalanx.spec.shapes`, usually a `RecordShape`."""

    def read(self, node: Any, findings: Any) -> Any: ...

    def schema(self) -> dict[str, Any]: ...

    def words(self) -> str: ...


class Requirement(NamedTuple):
    """A program or file of this machine that a backend uses, for `phalanx doctor`."""

    name: str
    found: str | None  # its place or version; None: missing
    fix: str  # how to get it
    use: str  # what needs it


class FactTable(NamedTuple):
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Diagnosis:
    """What `phalanx doctor --on NAME` reports. Without problems, runs can run there."""

    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # for people; empty values are left out
    tables: Sequence[FactTable] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # the same for programs


@dataclass(frozen=True)
class Review:
    """The findings of a backend about a file before it is submitted. `note` is shown if there is no error; `data` is
    added to the output of `phalanx check --json`."""

    findings: Sequence[SiteFinding] = ()
    note: str | None = None
    is_warning: bool = False  # of the note: the review is not complete
    data: Mapping[str, Any] = field(default_factory=dict)


class Backend(ABC):
    """Turns plans into jobs, and knows the engine that runs them. Holds no state: one instance serves all threads.

    A *target* describes where jobs go: a site profile, a cluster's address. It is any value that can be compared; runs
    with equal targets share one engine. The default is None.
    """

    name: str  # as in the entry point, `--on NAME` and `backend: NAME`
    settings: SettingsSchema | None = None  # validates `environment.NAME`; the result is `plan.backend_settings[NAME]`
    shares_files: bool = True  # whether replicas see the folders of this home
    is_batch: bool = False  # whether a job holds the memory limits of its replicas for a time that it requests
    options: Collection[str] = ()  # options of the command line that name a target, as `target` reads them

    @abstractmethod
    def render(self, plan: Plan, target: Any = None) -> Job:
        """Return the job of a plan, for a target if one is known. Pure: it writes no file and does not query the
        machine.

        With `carries_agent`, the agent lies in the run's folder as `job/agent.pyz`. Where one job runs all replicas on
        one machine, its script only has to call, in the folder of the code, with any Python of at least 3.8:

            python3 -I -S FOLDER/job/agent.pyz FOLDER/plan.json FOLDER/job/attempt-N.json --all-here HANDLE

        which starts all replicas, waits for them and ends them on SIGTERM. The agent reads the plan from `plan.json`:
        include it in the job's files as the JSON of `phalanx.plan.document.document(plan)`.

        Raises CallError for what this backend cannot run.
        """

    @abstractmethod
    def engine(self, target: Any, connections: Connections) -> Engine | None:
        """Return the engine of a target. None if replicas are processes of this machine that Phalanx itself starts.

        Must not wait for the network: connections are opened on first use, through `connections`, whose owner closes
        them. Raises nothing.
        """

    def target(
        self,
        home: Path,  # noqa: ARG002
        plan: Plan | None = None,  # noqa: ARG002
        *,
        options: Mapping[str, str | None] = NO_OPTIONS,  # noqa: ARG002
        ask: bool = False,  # noqa: ARG002
    ) -> Any:
        """Return the target of new runs. `options`: those of the command line, by name; `ask`: the network may be used.

        Default: None. Raises CallError.
        """
        return None

    def target_of_run(self, home: Path, run_folder: Path) -> Any:  # noqa: ARG002
        """Return the target of a run that was rendered before, from the files in its folder. Default: `target(home)`.

        Raises CallError.
        """
        return self.target(home)

    def backend_for(self, backend: str) -> str:  # noqa: ARG002
        """Return the name of the backend that runs a file if the user asks for this one, and the file names `backend`.
        Default: this one."""
        return self.name

    def review(
        self,
        plans: Iterable[tuple[str, Plan]],
        home: Path,
        environment: Mapping[str, str],  # noqa: ARG002
        options: Mapping[str, str | None] = NO_OPTIONS,
    ) -> Review:
        """Return the findings about these plans, each with the prefix of its messages. It may ask the engine for a few
        seconds; an engine that does not respond is a note, not an error.

        Default: what `render` rejects. Raises CallError for wrong `options`.
        """
        findings = []
        for prefix, plan in plans:
            try:
                self.render(plan, self.target(home, plan, options=options))
            except CallError as fault:
                findings += [SiteFinding(ERROR, "", f"{prefix}{line}") for line in str(fault).splitlines()]
        return Review(findings)

    def diagnose(self, home: Path, environment: Mapping[str, str], options: Mapping[str, str | None]) -> Diagnosis:
        """Look at the target for `phalanx doctor --on NAME`. The network may be used; nothing is created.

        Default: the error of `Engine.preflight`, if any. Raises CallError if the target cannot be examined.
        """
        with Connections() as connections:
            engine = self.engine(self.target(home, options=options, ask=True), connections)
            try:
                if engine is not None:
                    engine.preflight(environment)
            except (CallError, SystemFault) as fault:
                return Diagnosis(problems=[str(fault)])
        return Diagnosis()

    def requirements(self, home: Path) -> Iterable[Requirement]:  # noqa: ARG002
        """Return programs and files that this backend needs on this machine, for `phalanx doctor`. Default: none."""
        return ()
