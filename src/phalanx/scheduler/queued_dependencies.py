"""Runs that wait for other runs in the queue of their engine: submitted at once, as jobs that depend on jobs.

A job waits for the success of another one, or for any end of one that is not restarted with another job. All other runs
wait here, in `dependencies.py`. The engine never removes a job whose dependency failed: what becomes of it is decided
here, from the statuses of the runs, and each pass compares what the job waits for with what it should wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from phalanx.backends.contract import RUNNING, JobDependency
from phalanx.home.attempts import AttemptFolder
from phalanx.home.dependencies import RequiredEnd, read_dependencies, waiting_words
from phalanx.scheduler import dependencies
from phalanx.scheduler.engine_executor import EngineExecutor
from phalanx.scheduler.executors import Executors
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.submission_records import SubmissionRecord
from phalanx.store import Run
from phalanx.store.dependencies import OpenDependency
from phalanx.store.kinds import WHOLES
from phalanx.store.statuses import Status


class QueuedDependencies:
    def __init__(self, ledger: Ledger, executors: Executors) -> None:
        self.ledger, self.executors, self.store = ledger, executors, ledger.store

    def submittable(self) -> Iterator[Run]:
        """The waiting runs whose jobs can wait in the engine."""
        for executor in self.executors.elsewhere:
            for run_id in self.store.runs_after_started(executor.engine.name):
                run = self.store.find(run_id)
                if run.kind in WHOLES or self.executors.of(run) is not executor or not self.jobs_before(run):
                    continue
                with suppress(OSError):
                    if executor.engine.takes_dependencies(self.ledger.home.run(run_id).path):
                        yield run

    def jobs_before(self, run: Run) -> tuple[JobDependency, ...] | None:
        """The jobs that the job of a run must wait for. None if the engine cannot wait for all runs that it waits for,
        or not now."""
        found: list[JobDependency] = []
        for one in self.store.open_dependencies_of(run.id):
            if RequiredEnd(one.condition).holds(one.status) is True:
                continue
            job = self._job_before(run, one)
            if job is None:
                return None
            found.append(job)
        return tuple(sorted(found))

    def _job_before(self, run: Run, one: OpenDependency) -> JobDependency | None:
        condition, watched = RequiredEnd(one.condition), self.ledger.watched.get(one.upstream)
        if condition is RequiredEnd.FAILED or watched is None or condition.holds(one.status) is not None:
            return None  # an engine counts a cancelled job as failed
        upstream, executor = self.store.find(one.upstream), self.executors.of(run)
        if not isinstance(executor, EngineExecutor) or self.executors.of(upstream) is not executor:
            return None
        must_succeed = condition is RequiredEnd.SUCCEEDED
        if not must_succeed and (watched.plan.max_restarts or watched.plan.segment_s is not None):
            return None  # its next attempt may be another job
        if upstream.status not in (Status.BUILDING, Status.SCHEDULED, Status.STARTING, Status.RUNNING):
            return None
        handle = executor.handle(self.ledger.attempt_folder(upstream))
        if handle is None or executor.engine.array_of(handle) is not None:
            return None
        return JobDependency(handle, must_succeed)

    def is_queued(self, run: Run) -> bool:
        """Whether a run may have a job that waits for others, and has not started."""
        return run.status == Status.SCHEDULED and isinstance(self.executors.of(run), EngineExecutor)

    def follow_all(self, guarded: dependencies.Guard) -> None:
        """Settle the dependencies of all runs that wait in an engine."""
        rows = self.store.dependencies_of_started() if self.executors.elsewhere else ()
        for run_id, of_run in groupby(rows, attrgetter("run_id")):
            found = list(of_run)
            guarded(lambda run: self._follow(run, found), self.store.find(run_id), None)  # noqa: B023 - called at once

    def _follow(self, run: Run, rows: list[OpenDependency]) -> None:
        """Raises OSError."""
        if not self.is_queued(run) or run.id not in self.ledger.watched:
            if run.status != Status.SCHEDULED:
                self.store.close_dependencies(run.id)  # it has started
            return
        executor, attempt_folder = self.executors.of(run), self.ledger.attempt_folder(run)
        assert isinstance(executor, EngineExecutor)
        seen = executor.observation(attempt_folder)
        if (seen is not None and seen.state == RUNNING) or attempt_folder.facts_file.exists():
            self.store.close_dependencies(run.id)
            return
        failed = [one for one in rows if RequiredEnd(one.condition).holds(one.status) is False]
        if failed:
            if executor.is_resolved(attempt_folder, is_stopping=True) and executor.release(attempt_folder):
                dependencies.end(self.ledger, run, failed[0])
            return
        before = self.jobs_before(run)
        if before is not None and _is_told(executor, attempt_folder, before):
            for one in rows:
                if RequiredEnd(one.condition).holds(one.status):
                    self.store.close_dependencies(run.id, one.upstream)

    def words(self, run: Run) -> str:
        """For which runs a run waits in its engine; empty if for none."""
        if run.status != Status.SCHEDULED:
            return ""
        left = {one.upstream for one in self.store.open_dependencies_of(run.id)}
        if not left:
            return ""
        return waiting_words(one for one in read_dependencies(self.ledger.home.run(run.id)) if one.run_id in left)


def _is_told(executor: EngineExecutor, attempt_folder: AttemptFolder, after: tuple[JobDependency, ...]) -> bool:
    """Let the waiting job of an attempt wait for these jobs. False if the engine has not accepted it yet. Raises
    OSError."""
    record = SubmissionRecord.read(attempt_folder)
    if record is None or record.handle is None:
        return False
    if record.after != after:
        if not executor.view.change_dependencies(record.handle, after):
            return False
        replace(record, after=after).write(attempt_folder)
        executor.hurry()
    return True
