"""An engine that does what a test asks of it, and a home whose runs go there."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.contract import WAITING, Engine, EngineUnavailable, Observation, SubmissionStart
from phalanx.backends.slurm.engine import COMMANDS
from phalanx.ends import Cause
from phalanx.scheduler import engine_executor, engine_view, submission_records, submissions
from phalanx.scheduler.engine_executor import EngineExecutor
from phalanx.scheduler.loop import Scheduler
from phalanx.store import Run
from phalanx.store.statuses import Status
from phalanx.submission.submit import submit
from tests.scheduler.working import Works
from tests.submission.samples import submission_of

FILE = b"version: 1\nkind: experiment\nframework: pytorch\nenvironment: {%s}\nrun: {cmd: 'true'}\n"


class ScriptedEngine(Engine):
    """An engine that does what it is told: jobs are states, which the test sets."""

    name = "slurm"
    slowest_poll_s = 0.0

    def __init__(self) -> None:
        self.jobs: dict[str, Observation] = {}
        self.cancelled: list[str] = []
        self.polls = 0
        self.fault: Exception | None = None
        self.recalled: dict[str, Observation] = {}
        self.submitting: set[str] = set()  # runs whose submission may outlive its scheduler
        self.answers = threading.Event()  # cleared: submissions and questions hang
        self.answers.set()
        self.records_answer = threading.Event()  # cleared: nobody says why a job was restarted
        self.records_answer.set()
        self.submissions = 0
        self._lock = threading.Lock()

    def submit(
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,
        *,
        working: Path,
        environment: Mapping[str, str],
    ) -> str:
        self.answers.wait()
        if self.fault is not None:
            raise self.fault
        with self._lock:
            self.submissions += 1
            handle = f"slurm:{len(self.jobs) + 1}"
            self.jobs[handle] = Observation(WAITING, "because", run_id=run_id, attempt=attempt)
        return handle

    def is_submitting(self, run_id: str, attempt: int, start: SubmissionStart) -> bool:
        return run_id in self.submitting

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        self.polls += 1
        self.answers.wait()
        if isinstance(self.fault, EngineUnavailable):
            raise self.fault
        return dict(self.jobs)

    def history(self, run_id: str) -> dict[str, Observation]:
        return {handle: seen for handle, seen in self.recalled.items() if seen.run_id == run_id}

    def why_restarted(self, handle: str) -> str:
        self.records_answer.wait()
        return "a node failed"

    def refine(self, seen: Observation, lines: Collection[str]) -> Observation:
        return seen._replace(cause=Cause.MEMORY, why="killed for memory") if "oom" in lines else seen

    def cancel(self, handles: Collection[str]) -> None:
        self.cancelled += handles


class Cluster:
    def __init__(self, works: Works) -> None:
        self.works, self.engine = works, ScriptedEngine()
        self.scheduler = self.new_scheduler()

    def new_scheduler(self, clock: Callable[[], float] = time.time) -> Scheduler:
        """The scheduler that follows one that was killed."""
        scheduler = Scheduler(self.works.home, self.works.store, clock=clock)
        scheduler.executors.known = [("slurm", None, EngineExecutor(self.engine, self.works.home.arrays))]
        return scheduler

    @property
    def executor(self) -> EngineExecutor:
        return self.scheduler.executors.elsewhere[0]

    def submit(self, environment: bytes = b"") -> str:
        asked = submission_of(FILE % environment, folder=Path("/"), environment=os.environ, on="slurm")
        return submit(self.works.home, self.works.store, asked).id

    def turn(self, times: int = 3, *, at_once: bool = True) -> None:
        """`at_once`: the engine is asked each time, however long it took the last time."""
        for _ in range(times):
            if at_once:
                self.executor.poll_at = float("-inf")
            self.scheduler.run_pass()
            if self.engine.answers.is_set():
                wait([order.result for order in self.executor.submissions.orders.values()], timeout=10.0)

    def lose_handle(self, run_id: str, attempt: int = 1) -> None:
        """Another scheduler goes on after one that was killed as it submitted an attempt."""
        self.handle_file(run_id, attempt).write_text('{"handle": null}')
        self.scheduler = self.new_scheduler()

    def handle_file(self, run_id: str, attempt: int = 1) -> Path:
        return self.works.run_folder(run_id).path / "job" / f"attempt-{attempt}.handle"

    def handle(self, run_id: str, attempt: int = 1) -> str | None:
        """As it is on disk."""
        return json.loads(self.handle_file(run_id, attempt).read_text()).get("handle")  # type: ignore[no-any-return]

    def stop(self, run_id: str) -> None:
        self.works.run_folder(run_id).ask_to_stop("enough")

    def waiting(self, run_id: str) -> str:
        fact = self.works.store.facts(run_id).get("waiting")
        return str(fact["why"]) if fact else ""

    def claim(self, run_id: str, handle: str, attempt: int = 1) -> None:
        """A job says that it runs an attempt, before it has begun."""
        path = self.works.run_folder(run_id).path / "job" / f"attempt-{attempt}.claim.json"
        path.write_text(json.dumps({"job": handle}))

    def run(self, run_id: str) -> Run:
        return self.works.store.find(run_id)

    def became(self, handle: str, state: str, why: str = "", cause: str = "lost") -> None:
        self.engine.jobs[handle] = self.engine.jobs[handle]._replace(state=state, why=why, cause=Cause(cause))

    def facts(self, run_id: str, handle: str, attempt: int = 1, **more: float) -> None:
        """The job says that it has begun an attempt."""
        path = self.works.run_folder(run_id).path / "job" / f"attempt-{attempt}.json"
        path.write_text(json.dumps({"job": handle, "attempt": attempt, "first": 1, **more}))

    def agent(self, run_id: str, attempt: int = 1) -> Path:
        folder = self.works.place(run_id, attempt=attempt)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "agent.json").write_text("{}")
        return folder

    def end(self, run_id: str, cause: str, attempt: int = 1, message: str = "", **more: Any) -> None:
        folder = self.agent(run_id, attempt)
        now = time.time()
        end: dict[str, Any] = {"cause": cause, "message": message or cause, "started_at": now, "ended_at": now}
        code = 0 if cause == "finished" else 1
        (folder / "end.json").write_text(json.dumps({**end, "code": code, "signal": None, **more}))


@pytest.fixture(name="cluster")
def cluster_fixture(works: Works, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    commands = tmp_path / "slurm"
    commands.mkdir()
    for name in COMMANDS:  # so that its jobs are taken here; the engine is another
        (commands / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    for name in ("POLL_S", "LOOK_S", "WAITING_LOOK_S", "SETTLES_S"):
        monkeypatch.setattr(engine_executor, name, 0.0)
    for module in (engine_view, submissions):
        monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(submission_records, "LATE_S", 0.0)
    cluster = Cluster(works)
    yield cluster
    cluster.engine.answers.set()
    cluster.engine.records_answer.set()
    for run in works.store.active():
        cluster.scheduler.finish(run, Status.STOPPED, "the test is over")
    cluster.scheduler.executors.here.close()
