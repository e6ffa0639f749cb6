"""Runs that wait for other runs in the queue of an engine that does what a test asks of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.backends.contract import ENDED, RUNNING, EngineUnavailable, JobDependency
from phalanx.ingest.adoption import adopt_all
from phalanx.scheduler.engine_executor import EngineExecutor
from phalanx.submission.dependencies import resolve
from phalanx.submission.resume import request_resume
from phalanx.submission.submit import submit
from tests.scheduler.scripted_engine import FILE, Cluster, ScriptedEngine
from tests.scheduler.working import Works
from tests.submission.samples import submission_of


class WaitingEngine(ScriptedEngine):
    """The same, with jobs that depend on jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.after: dict[str, tuple[JobDependency, ...]] = {}  # by handle
        self.takes = True
        self.refuses_changes = False

    def takes_dependencies(self, folder: Path) -> bool:
        return self.takes

    def array_of(self, handle: str) -> str | None:
        return handle.rpartition("_")[0] or None

    def submit_after(
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
        handle = self.submit(folder, run_id, attempt, first, working=working, environment=environment)
        self.after[handle] = tuple(after)
        return handle

    def change_dependencies(self, handle: str, after: Sequence[JobDependency]) -> None:
        if self.refuses_changes:
            raise EngineUnavailable("away")
        self.after[handle] = tuple(after)


class WaitingCluster(Cluster):
    engine: WaitingEngine

    def use(self, engine: WaitingEngine) -> None:
        self.engine = engine
        self.scheduler.executors.known = [("slurm", None, EngineExecutor(engine, self.works.home.arrays))]

    def follow(self, *after: str, environment: bytes = b"") -> str:
        asked = submission_of(FILE % environment, folder=Path("/"), environment=os.environ, on="slurm")
        asked = replace(asked, waits_for=resolve(after, self.works.store.find))
        return submit(self.works.home, self.works.store, asked).id

    def after(self, run_id: str, attempt: int = 1) -> list[tuple[str, bool]] | None:
        """What the job of a run waits for; None if it has no job."""
        if not self.handle_file(run_id, attempt).exists():
            return None
        recorded = json.loads(self.handle_file(run_id, attempt).read_text())
        told = [tuple(one) for one in self.engine.after.get(recorded["handle"], ())]
        assert [tuple(one) for one in recorded["after"] or ()] == told
        return told  # type: ignore[return-value]

    def start(self, run_id: str, attempt: int = 1) -> str:
        """Its job runs, and its agent."""
        handle = str(self.handle(run_id, attempt))
        self.became(handle, RUNNING)
        self.facts(run_id, handle, attempt)
        self.agent(run_id, attempt)
        return handle

    def finish(self, run_id: str, cause: str, attempt: int = 1) -> None:
        handle = self.start(run_id, attempt)
        self.end(run_id, cause, attempt)
        self.became(handle, ENDED, cause, "finished" if cause == "finished" else "lost")


@pytest.fixture(name="waiting")
def waiting_fixture(cluster: Cluster) -> WaitingCluster:
    cluster.__class__ = WaitingCluster
    assert isinstance(cluster, WaitingCluster)
    cluster.use(WaitingEngine())
    return cluster


def test_a_run_is_submitted_at_once_and_its_job_waits_for_all_others(waiting: WaitingCluster) -> None:
    first, second = waiting.submit(), waiting.submit()
    last = waiting.follow(first, f"{second}:done")
    assert waiting.after(last) is None
    waiting.turn(4)
    one, other = waiting.handle(first), waiting.handle(second)
    assert waiting.after(last) == sorted([(one, True), (other, False)])
    assert waiting.run(last).status == "scheduled"
    assert waiting.waiting(last).startswith(f"waits for run {first} to succeed, run {second} to end; slurm:3 waits")
    waiting.finish(second, "error")
    waiting.turn(4)
    assert waiting.after(last) == [(one, True)]
    assert waiting.waiting(last).startswith(f"waits for run {first} to succeed; ")
    waiting.finish(first, "finished")
    waiting.turn(4)
    assert waiting.after(last) == []  # whatever the engine makes of the end of that job
    assert waiting.works.store.blocked() == set()
    waiting.finish(last, "finished")
    waiting.turn(4)
    assert (waiting.run(last).status, waiting.run(last).attempt) == ("succeeded", 1)
    assert waiting.engine.submissions == 3


def test_a_run_whose_dependency_fails_ends_without_its_job_and_waits_again_if_it_is_resumed(
    waiting: WaitingCluster,
) -> None:
    first = waiting.submit()
    second = waiting.follow(first)
    third = waiting.follow(second)
    waiting.turn(5)
    assert waiting.after(third) == [(waiting.handle(second), True)]
    waiting.finish(first, "error")
    waiting.turn(5)
    assert waiting.run(second).status == waiting.run(third).status == "upstream_failed"
    assert f"run {first} ended as failed" in waiting.run(second).reason
    assert {waiting.handle(second), waiting.handle(third)} <= set(waiting.engine.cancelled)
    waiting.became(str(waiting.handle(second)), ENDED, "the job was cancelled", "stopped")
    for run_id in (first, second):
        request_resume(waiting.works.home, waiting.run(run_id), os.environ)
    waiting.turn(5)
    assert waiting.after(second, 2) == [(waiting.handle(first, 2), True)]


def test_a_job_follows_the_attempts_of_the_other_run(waiting: WaitingCluster) -> None:
    flaky = waiting.submit(b"max_restarts: 1")
    last, whatever = waiting.follow(flaky), waiting.follow(f"{flaky}:done")
    waiting.turn(4)
    assert waiting.after(last) == [(waiting.handle(flaky), True)]
    assert waiting.after(whatever) is None  # the end of this job is not the end of the run
    waiting.finish(flaky, "error")
    waiting.turn(5)
    assert waiting.run(flaky).attempt == 2
    assert waiting.after(last) == [(waiting.handle(flaky, 2), True)]
    assert waiting.run(last).status == "scheduled"
    waiting.finish(flaky, "error", 2)
    waiting.turn(5)
    assert waiting.run(last).status == "upstream_failed"
    assert waiting.after(whatever) == []


def test_what_an_engine_cannot_express_waits_on_our_side(waiting: WaitingCluster) -> None:
    first, segmented = waiting.submit(), waiting.submit(b"timeout: 3h, slurm: {segment: 1h}")
    rescue, whatever = waiting.follow(f"{first}:failed"), waiting.follow(f"{segmented}:done")
    waiting.engine.takes = False
    heterogeneous = waiting.follow(first)
    waiting.turn(4)
    assert [waiting.after(run) for run in (rescue, whatever, heterogeneous)] == [None] * 3
    waiting.engine.takes = True
    task = waiting.submit()
    waiting.turn(2)
    waiting.handle_file(task).write_text('{"handle": "slurm:9_1"}')
    waiting.engine.jobs["slurm:9_1"] = waiting.engine.jobs["slurm:3"]
    waiting.scheduler = waiting.new_scheduler()
    behind = waiting.follow(task)
    waiting.turn(4)
    assert waiting.after(behind) is None
    assert waiting.run(behind).status == "created"


def test_a_killed_scheduler_and_a_lost_database_change_nothing(waiting: WaitingCluster, works: Works) -> None:
    first = waiting.submit()
    last = waiting.follow(first)
    waiting.turn(4)
    waiting.lose_handle(last)
    works.store.clear()
    adopt_all(works.home, works.store, works.home.run_ids())
    assert works.store.blocked() == {last}
    waiting.turn(5)
    assert waiting.engine.submissions == 2
    assert waiting.after(last) == [(waiting.handle(first), True)]
    waiting.finish(first, "error")
    waiting.turn(5)
    assert waiting.run(last).status == "upstream_failed"


def test_a_change_that_the_engine_does_not_accept_is_made_later(waiting: WaitingCluster) -> None:
    first, second = waiting.submit(), waiting.submit()
    last = waiting.follow(first, second)
    waiting.turn(4)
    waiting.engine.refuses_changes = True
    waiting.finish(first, "finished")
    waiting.turn(4)
    assert waiting.after(last) == sorted((waiting.handle(run), True) for run in (first, second))
    waiting.engine.refuses_changes = False
    waiting.turn(4)
    assert waiting.after(last) == [(waiting.handle(second), True)]


def test_a_job_that_the_engine_has_started_waits_for_nothing_more(waiting: WaitingCluster) -> None:
    first = waiting.submit()
    last = waiting.follow(first)
    waiting.turn(4)
    waiting.start(last)
    waiting.turn(4)
    assert waiting.run(last).status == "running"
    assert waiting.works.store.blocked() == set()
    waiting.finish(first, "error")
    waiting.turn(4)
    assert waiting.run(last).status == "running"


def test_a_run_that_waits_in_the_engine_is_stopped(waiting: WaitingCluster) -> None:
    first = waiting.submit()
    last = waiting.follow(first)
    waiting.turn(4)
    waiting.stop(last)
    waiting.turn(2)
    handle = str(waiting.handle(last))
    assert handle in waiting.engine.cancelled
    waiting.became(handle, ENDED, "the job was cancelled", "stopped")
    waiting.turn(4)
    assert waiting.run(last).status == "stopped"
