"""Ledger: the state of unfinished runs, and every write of it: first to the run's history, then to the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from phalanx.backends.contract import LOCAL_BACKENDS, Observation
from phalanx.backends.local import runner
from phalanx.ends import Cause, read_end
from phalanx.errors import CallError
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.home.home import Home
from phalanx.ingest.adoption import adopt_all
from phalanx.ingest.indexer import RunIndexers
from phalanx.insight.autopsy import FirstFailure
from phalanx.notifications.notices import NoticeBoard
from phalanx.scheduler import post_run
from phalanx.scheduler.active_runs import ActiveRun
from phalanx.scheduler.resumes import apply_requests
from phalanx.spec.model import NotifyEvent
from phalanx.store import Run, StatusChange, Store
from phalanx.store.statuses import DONE, Status, may_follow
from phalanx.stored_plan import PlanDamaged
from phalanx.tracking.external_folder import BACKEND as OUTSIDE
from phalanx.tracking.external_folder import REPLICA

ADOPT_S = 1.0  # how often to look for folders without rows, if there are new folders
Clock = Callable[[], float]


class RunUnreadable(Exception):
    """The folder of a run cannot be read. The message is the reason of its failure."""


class Ledger:
    """`clock` gives the times of statuses. Durations are measured with a monotonic clock. `here`: the backends whose
    runs are processes of this scheduler."""

    def __init__(
        self, home: Home, store: Store, clock: Clock = time.time, here: Sequence[str] = LOCAL_BACKENDS
    ) -> None:
        self.here = here
        self.makes_ticks = False  # of schedules: only in a server
        self.home = home
        self.store = store
        self.clock = clock
        self.watched: dict[str, ActiveRun] = {}
        self.looked_at = (-1, -1)  # modification times of the runs' folder at the last two looks for new runs
        self.look_at = float("-inf")
        self.indexers = RunIndexers(home, store)
        self.notices = NoticeBoard(home)

    def adopt(self) -> None:
        """Add rows for run folders without one: their submitter was killed in between."""
        self.notices.look(self.store, self.clock())
        arrived = self.home.arrived()
        self.forget(arrived)
        adopt_all(self.home, self.store, arrived)
        apply_requests(self.home, self.store)
        now, changed = time.monotonic(), self.home.runs.stat().st_mtime_ns
        # File times are coarse: nothing new has arrived only if the time was the same twice, some time apart.
        if now < self.look_at or self.looked_at == (changed, changed):
            return
        self.looked_at = (self.looked_at[1], changed)
        adopt_all(self.home, self.store, set(self.home.run_ids()) - self.store.ids())
        self.look_at = now + max(ADOPT_S, 20 * (time.monotonic() - now))  # listing a home of 100,000 runs is slow

    def catch_up(self, run: Run) -> Run | None:
        """Update the run from its history, in case a scheduler was killed before it wrote to the store; None if the run
        is finished. Raises RunUnreadable."""
        if run.id in self.watched:
            return run
        history = self.home.run(run.id).history()
        run = self.apply_history(run, history)
        if run.is_done:
            return None
        try:
            self.watched[run.id] = ActiveRun.read(self.home.run(run.id), history)
        except PlanDamaged as fault:
            raise RunUnreadable(f"{fault}: restore the file, or start the run again with `phalanx restart`") from None
        except OSError as fault:
            raise RunUnreadable(f"its folder cannot be read: {fault.filename}: {fault.strerror or fault}") from None
        return run

    def forget(self, run_ids: Iterable[str]) -> None:
        """Read the history of these runs again: their clients may have continued them."""
        for run_id in run_ids:
            self.watched.pop(run_id, None)

    def apply_history(self, run: Run, history: Sequence[StatusChange]) -> Run:
        """The run, with the statuses that were not written to the store."""
        last = history[-1] if history else None
        if last is None or (last.status, last.attempt, last.reason) == (run.status, run.attempt, run.reason):
            return run
        with self.store.transaction():
            for change in history:
                self.store.record(change)
        run = self.store.find(run.id)
        if run.is_done:
            self.home.forget_environment(run.id)
        return run

    def attempt_folder(self, run: Run) -> AttemptFolder:
        watched = self.watched[run.id]
        if watched.folder is None or watched.folder.attempt != run.attempt:
            names = tuple(replica.name for replica in watched.plan.replicas)
            watched.folder = AttemptFolder(self.home.run(run.id).path, run.id, run.attempt, names)
        return watched.folder

    def facts(self, run: Run) -> Mapping[str, Any]:
        """The facts file of the run's attempt."""
        watched = self.watched.get(run.id)
        if watched is None:
            return {}
        if watched.facts is None:
            watched.facts = attempts.read_facts(self.attempt_folder(run)) or None
        return watched.facts or {}

    def record_waiting(self, run: Run, why: str) -> None:
        """Store why a remote run waits. It is no status, since it may change often."""
        watched = self.watched.get(run.id)
        if watched is not None and watched.waits_for != why:
            watched.waits_for = why
            self.store.put_fact(run.id, "waiting", {"why": why, "at": self.clock()} if why else None)

    def is_over(self, run_id: str) -> bool:
        """Whether a run of this home is finished."""
        try:
            return self.store.find(run_id).is_done
        except CallError:
            return False

    def record_job(self, run: Run, handle: str | None, seen: Observation | None) -> None:
        """Store the handle and the nodes of a remote run."""
        watched = self.watched.get(run.id)
        nodes = seen.nodes if seen is not None else ""
        if watched is not None and handle is not None and watched.job != (handle, nodes):
            watched.job = (handle, nodes)
            self.store.put_fact(run.id, "job", {"handle": handle, "nodes": nodes})

    def record_failure(self, run: Run, failed: FirstFailure | None) -> None:
        """Store which replica failed first."""
        if failed is not None:
            self.store.put_fact(run.id, "failure", failed.as_fact(run.attempt))
            if failed.end.cause == Cause.STALLED:
                self.notices.leave(run, NotifyEvent.STALLED, run.attempt, failed.why)

    def finish(self, run: Run, status: Status, reason: str) -> None:
        """End a run. The environment is removed first: after the status has changed, no later pass would remove it."""
        self.home.forget_environment(run.id)
        self.indexers.finish(run)
        self.change(run, status, reason)
        self.home.forget_stop(run.id)
        self.enqueue_post_run(run)
        self.watched.pop(run.id, None)

    def enqueue_post_run(self, run: Run) -> None:
        post_run.enqueue(self.home, run.id)

    def _time_elsewhere(self, run: Run, status: Status) -> float | None:
        """When a run that is tracked, or runs on an engine, started or ended there. The scheduler may notice later,
        for example after its machine was down. None: now."""
        if run.backend == OUTSIDE and status in DONE:
            place = AttemptFolder(self.home.run(run.id).path, run.id, run.attempt, (REPLICA,))
            end = runner.observe(place)[REPLICA].end
            return end.ended_at if end is not None else None
        if run.backend in self.here or run.id not in self.watched:
            return None
        if status == Status.RUNNING:
            began_at: float | None = self.facts(run).get("began_at")
            return began_at
        place = self.attempt_folder(run)
        ends = [read_end(place.folder(name)) for name in place.replicas] if status in DONE else []
        return max((end.ended_at for end in ends if end is not None), default=None)

    def change(self, run: Run, status: Status, reason: str, attempt: int | None = None) -> bool:
        """Write a new status to the history, then to the store. False if it may not follow the current one."""
        if not may_follow(run.status, status):
            return False
        self._append(run, status, reason, run.attempt if attempt is None else attempt)
        return True

    def restate(self, run: Run, reason: str) -> None:
        """Write another reason for the current status."""
        self._append(run, Status(run.status), reason, run.attempt)

    def _append(self, run: Run, status: Status, reason: str, attempt: int) -> None:
        folder, watched = self.home.run(run.id), self.watched.get(run.id)
        number = watched.number if watched else len(folder.history()) or len(self.store.statuses(run.id))
        is_end = status in DONE and run.status not in DONE
        if is_end:
            self.notices.leave_end(run, status, number + 1, reason)
        # A clock may be set back: the time of a status is never before that of the previous one.
        at = self._time_elsewhere(run, status)
        now = max(
            datetime.fromtimestamp(min(at or self.clock(), self.clock()), UTC),
            watched.at if watched else run.updated_at,
        )
        change = StatusChange(run.id, number + 1, attempt, status, reason[:400], now)
        if folder.path.is_dir():
            folder.append(change)
        if watched:
            watched.number, watched.at = change.number, change.at
        self.store.record(change)
        if is_end:
            self.notices.start_sender()
