"""`Job`: a run with the methods of submitit's jobs."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import RunFailed
from phalanx.launch.run_future import RunFuture
from phalanx.store.statuses import Status

STATES = {
    Status.SUCCEEDED: "COMPLETED",
    Status.FAILED: "FAILED",
    Status.STOPPED: "CANCELLED",
    Status.SKIPPED: "CANCELLED",
    Status.UPSTREAM_FAILED: "CANCELLED",
    Status.RUNNING: "RUNNING",
    Status.STARTING: "RUNNING",
}


class UncompletedJobError(RuntimeError):
    """A job was cancelled, or ended without a result."""


class FailedJobError(UncompletedJobError):
    """The function raised an exception: it is the cause, and the message has its traceback."""


class JobPaths(NamedTuple):
    """Where a job leaves its files."""

    folder: Path
    stdout: Path
    stderr: Path
    result_pickle: Path


class Job:
    """`tasks`: how many ranks the function runs in. The result of several is a list."""

    def __init__(self, folder: str | Path, run: RunFuture | None, tasks: int = 1, task_id: int | None = None) -> None:
        self._folder = Path(folder)
        self._started = run
        self.num_tasks = tasks
        self.task_id = task_id

    @property
    def run(self) -> RunFuture:
        """The run. Raises AttributeError inside of `executor.batch()`, where it has not been started."""
        if self._started is None:
            raise AttributeError("the jobs of a batch start at its end: leave `with executor.batch()` first")
        return self._started

    def start(self, run: RunFuture) -> None:
        """The run of a job that a batch has started."""
        self._started = run

    @property
    def job_id(self) -> str:
        return self.run.id

    @property
    def state(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED or CANCELLED."""
        return STATES.get(Status(self.run.state), "PENDING")

    def task(self, task_id: int) -> Job:
        """The job as one of its ranks has seen it."""
        if not 0 <= task_id < self.num_tasks:
            raise ValueError(f"task_id {task_id} must be between 0 and {self.num_tasks - 1}")
        return Job(self._folder, self.run, self.num_tasks, task_id)

    def done(self, force_check: bool = False) -> bool:  # noqa: ARG002 - submitit's; every look is a new one
        return self.run.done()

    def wait(self) -> None:
        self.run.wait()

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002 - submitit's
        self.run.cancel()

    def result(self) -> Any:
        """What the function returned; a list for several tasks. Raises FailedJobError, UncompletedJobError."""
        found = self.results()
        return found[0] if self.num_tasks == 1 or self.task_id is not None else found

    def results(self) -> list[Any]:
        fault = self.exception()
        if fault is not None:
            raise fault
        found = self.run.results()
        return found if self.task_id is None else [found[self.task_id]]

    def exception(self) -> UncompletedJobError | None:
        """Waits for the end. None if the job succeeded."""
        fault = self.run.exception()
        if fault is None:
            return None
        known = fault if isinstance(fault, RunFailed) else fault.__cause__
        text = f"job {self.job_id} failed: {known or fault}"
        is_failed = self.state == "FAILED" and not (isinstance(fault, RunFailed) and fault.traceback is None)
        made = FailedJobError(text) if is_failed else UncompletedJobError(text)
        made.__cause__ = fault
        return made

    def stdout(self) -> str | None:
        """What all tasks, or one, printed: standard output and standard error in one text."""
        return self.run.stdout(self.task_id)

    stderr = stdout

    @property
    def paths(self) -> JobPaths:
        """The log files are written when they are asked for."""
        folder = Path(str(self._folder).replace("%j", self.job_id)).absolute()
        name = f"{self.job_id}_{self.task_id or 0}"
        paths = JobPaths(folder, *(folder / f"{name}_{end}" for end in ("log.out", "log.err", "result.pkl")))
        folder.mkdir(parents=True, exist_ok=True)
        text = self.stdout() or ""
        for path in (paths.stdout, paths.stderr):
            path.write_text(text, encoding="utf-8")
        return paths

    def get_logs_path(self, name: str = "stdout") -> Path:
        found: Path = getattr(self.paths, name)
        return found

    def awaitable(self) -> AwaitableJob:
        return AwaitableJob(self)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.awaitable().result().__await__()

    def __repr__(self) -> str:
        if self._started is None:
            return "Job(in a batch)"
        return f"Job(job_id={self.job_id}, task_id={self.task_id or 0}, state={self.state})"


class AwaitableJob:
    """`wait`, `result` and `results` of a job as coroutines."""

    def __init__(self, job: Job) -> None:
        self.job = job

    async def wait(self) -> None:
        await self.job.run.awaitable().wait()

    async def result(self) -> Any:
        await self.wait()
        return self.job.result()

    async def results(self) -> list[Any]:
        await self.wait()
        return self.job.results()
