"""The scheduler's loop. Level-triggered: every pass reads the current state and takes the next step for each run.

All state is in the runs' folders, so the next holder of the lease continues where the last one was killed. Every change
is written first to the run's history, then to the store.
"""

from __future__ import annotations

import errno
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, filterfalse
from pathlib import Path
from subprocess import SubprocessError
from typing import TypeVar

from phalanx import run_paths
from phalanx.agent.fork_server import ForkServerLost
from phalanx.agent.interactive.hold import write_hold
from phalanx.backends.contract import ENDED, LOCAL_BACKENDS, JobDependency, Observation
from phalanx.backends.local import runner
from phalanx.backends.local.capacity import NOTHING, Capacity, allocate, excess, this_machine
from phalanx.ends import Cause
from phalanx.errors import CallError, SystemFault
from phalanx.home import array_folder, attempts
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState
from phalanx.home.home import BALLAST_BYTES, Home
from phalanx.home.run_tokens import server_environment
from phalanx.scheduler import active_runs, dependencies, holds, retry
from phalanx.scheduler.active_runs import ActiveRun, AttemptOutcome, StartedRuns
from phalanx.scheduler.engine_executor import EngineExecutor, early_status
from phalanx.scheduler.executors import Executors
from phalanx.scheduler.group_pass import GroupPass
from phalanx.scheduler.ledger import Clock, Ledger, RunUnreadable
from phalanx.scheduler.local_executor import LocalStart
from phalanx.scheduler.queued_dependencies import QueuedDependencies
from phalanx.scheduler.retry import Action
from phalanx.scheduler.submissions import StartRequest
from phalanx.scheduler.unfinished import BLOCKED, QUEUED, STARTED
from phalanx.store import Run, Store
from phalanx.store.kinds import IS_RUN, WHOLES
from phalanx.store.statuses import Status, is_queued
from phalanx.tracking.external_folder import BACKEND as OUTSIDE

PAGE = 20  # queued local runs per pass: a pass must not take longer when thousands wait
LOOKS_S = 0.03  # CPU time of the looks at remote runs per pass: a pass must not take longer when thousands run
PAGE_ELSEWHERE = 60  # queued remote runs per pass; several are submitted at the same time
Answer = TypeVar("Answer")


class Scheduler(Ledger):
    def __init__(
        self, home: Home, store: Store, clock: Clock = time.time, here: Sequence[str] = LOCAL_BACKENDS
    ) -> None:
        super().__init__(home, store, clock, here)
        self.is_local, self.is_elsewhere = f"backend:{'|'.join(here)}", f"backend:~{'|'.join(here)}"
        self.room, self.gpus = this_machine()
        self.started: list[Run] = []
        self.started_runs = StartedRuns(store, f"{STARTED}, {IS_RUN}")
        self.has_acted = False  # whether the last pass started or ended remote runs
        self.trouble = ""  # the last error, for the log
        self.executors = Executors(home)
        self.queued_dependencies = QueuedDependencies(self, self.executors)
        self.groups = GroupPass(self)
        home.reserve_disk()
        home.tidy()
        array_folder.tidy(home.arrays, self.is_over)

    def close(self) -> None:
        """Close all connections and threads of its engines."""
        self.executors.close()
        self.groups.close()

    def run_pass(self) -> int:
        """Look at all unfinished runs once. Returns their number."""
        self.has_acted = False
        _note_starts(self, self._guarded)  # of a pass that an error ended
        self.adopt()
        self.groups.look()
        for run_id in self.home.asked_to_stop():
            self._apply_stop(run_id)
        found = self.started_runs.read()
        self.started = [run for run in found if not (is_queued(run.status, run.attempt) or self.groups.is_packed(run))]
        for run_id in self.executors.poll(self.started, self.attempt_folder, self.watched, self.is_over):
            self.watched[run_id].look_at = 0.0
        used = NOTHING
        late: list[ActiveRun] = []
        for run in active_runs.due(self.started, self.watched, self.executors.of_runs, LOOKS_S, late):
            if not self._guarded(self._settle, run, False) and self.executors.of(run).is_here:
                # The usage of an unreadable run is unknown: start nothing beside it.
                used += self.watched[run.id].share if run.id in self.watched else self.room
        self.has_acted |= any(one.look_at == 0.0 for one in late)  # their jobs have changed: no long pause
        dependencies.settle_all(self, self._guarded, self._up_to_date, self.queued_dependencies.is_queued)
        self.queued_dependencies.follow_all(self._guarded)
        groups = self.groups.run(self._guarded)  # before the queue is read: it makes new runs
        queues = (self.is_local, self.is_elsewhere)
        waiting, elsewhere = (self.store.count(f"{QUEUED}, {IS_RUN}, {where}") for where in queues)
        blocked = self.store.count(BLOCKED)
        unfinished = len(self.started) + waiting + elsewhere + groups + blocked
        for run in _head(self.store, self.is_local, waiting, PAGE):
            taken = self._guarded(lambda run: self._place(run, used), run, None)  # noqa: B023 - called at once
            if taken is None:
                break  # strictly in order: later, smaller runs must not starve it
            used += taken
        _note_starts(self, self._guarded)
        started = len(self.started)
        queued = _head(self.store, self.is_elsewhere, elsewhere, PAGE_ELSEWHERE) if elsewhere else ()
        for run in chain(filterfalse(self.groups.is_packed, queued), self.queued_dependencies.submittable()):
            self._guarded(lambda run: self._place(run, NOTHING), run, None)
        self.has_acted |= len(self.started) > started
        self.has_acted |= self.executors.finish_pass(self.groups.limits, self.started)
        _apply_refusals(self, self._guarded)
        return unfinished

    @property
    def is_idle_here(self) -> bool:
        """Whether all started runs are remote, and the last pass changed none: then longer pauses do not matter."""
        is_remote = all(run.backend not in self.here for run in self.started)
        return bool(self.started) and is_remote and not self.has_acted

    def _guarded(self, act: Callable[[Run], Answer], run: Run, otherwise: Answer) -> Answer:
        """Call `act` so that an error of one run does not block the others. Its state is read again afterwards."""
        try:
            return act(run)
        except (OSError, SystemFault, CallError) as fault:
            self.trouble = f"run {run.id}: {fault}"
            self.watched.pop(run.id, None)
            is_full = isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT)
            if is_full or shutil.disk_usage(self.home.path).free < BALLAST_BYTES:
                self.home.release_disk()
            return otherwise

    def _up_to_date(self, run: Run) -> Run | None:
        """The run as in its history; None if it is finished. A run with an unreadable folder fails."""
        try:
            return self.catch_up(run)
        except RunUnreadable as fault:
            self.executors.sweep(run)
            self.finish(run, Status.FAILED, str(fault))
            return None

    # starting ----------------------------------------------------------------------------------------------------

    def _apply_stop(self, run_id: str) -> None:
        """Stop a queued run at once, before it reaches the head of the queue."""
        try:
            run = self.store.find(run_id)
        except CallError:
            if not self.home.run(run_id).path.exists():
                self.home.forget_stop(run_id)
            return
        if run.kind in WHOLES and not run.is_done:
            return  # it stops its runs first
        if self.groups.is_packed(run):
            self.home.forget_stop(run_id)  # its job reads the request
            return
        reason = self.home.run(run_id).stop_reason()
        if reason is not None and is_queued(run.status, run.attempt):
            found = self._guarded(self._up_to_date, run, None)
            if found is not None and found.status == run.status:
                self._guarded(lambda run: self._stop_queued(run, reason), run, None)
        else:
            self.home.forget_stop(run_id)  # finished, or started: `_settle` stops it
            if run_id in self.watched:
                self.watched[run_id].look_at = 0.0

    def _stop_queued(self, run: Run, reason: str) -> None:
        """Stop a run that waits for its first or next attempt; tried again if its engine does not respond."""
        if self.executors.of(run).release(self.attempt_folder(run)):
            self.finish(run, Status.STOPPED, reason)

    def _place(self, run: Run, used: Capacity) -> Capacity | None:
        """Start a queued run if all of it fits. Returns the capacity that it takes; None if it must wait."""
        found = self._up_to_date(run)
        if found is None or found.status != run.status:
            return NOTHING
        stop = self.home.run(run.id).stop_reason()
        if stop is not None:
            self._stop_queued(run, stop)
            return NOTHING
        attempt = run.attempt + 1
        attempt_folder = self.attempt_folder(run._replace(attempt=attempt))
        executor, asked, beyond = self.executors.of(run), NOTHING, None
        if executor.is_here:
            asked = self.watched[run.id].share
            beyond = excess(asked, self.room)
            if not self._has_room(run, asked, used):
                return None
        elif (
            executor.is_full
            or not self.watched[run.id].is_due(executor, self.attempt_folder(run))
            or not executor.is_free(attempt_folder)
        ):
            return NOTHING
        reason = f"attempt {attempt}" + (f"; requests more than this machine has: {beyond}" if beyond else "")
        if not self.change(run, Status.SCHEDULED, reason, attempt=attempt):
            return NOTHING
        run = run._replace(attempt=attempt, status=Status.SCHEDULED)
        self.started.append(run)
        self._start(run)
        return asked

    def _has_room(self, run: Run, asked: Capacity, used: Capacity) -> bool:  # noqa: ARG002
        """Whether a run of this machine can start now. One that is larger than the machine runs alone."""
        return (used + asked).fits_in(self.room) or (excess(asked, self.room) is not None and used == NOTHING)

    def _start(self, run: Run) -> None:
        attempt_folder, executor = self.attempt_folder(run), self.executors.of(run)
        try:
            working = _working_folder(self.home, run, is_here=executor.is_here)
            write_hold(str(attempt_folder.run_folder), run.attempt, self.watched[run.id].hold_s)
            if isinstance(executor, EngineExecutor):
                after = self.queued_dependencies.jobs_before(run)
                if after is not None:  # otherwise a run that it waits for is between two attempts
                    executor.order(_start_request(self, executor, run, working, after))
            else:
                self._start_here(run, attempt_folder, working)
        except ForkServerLost as fault:
            self.trouble = f"run {run.id}: {fault}"  # the next pass looks for its agents, and starts it again
        except (OSError, ValueError, KeyError) as fault:
            self.finish(run, Status.FAILED, f"could not be started: {fault}")

    def _start_here(self, run: Run, attempt_folder: AttemptFolder, working: Path) -> None:
        others = [self.facts(other) for other in self.started if other.id != run.id and other.backend in self.here]
        busy = {gpu for facts in others for given in facts.get("gpus", {}).values() for gpu in given}
        given = self.home.environment(run.id)
        environment = {**given, **server_environment(self.home.path, run, given)}
        gpus = allocate(self.gpus, busy, self.watched[run.id].plan)
        self.executors.here.start(LocalStart(attempt_folder, working, environment, gpus))

    # observing ---------------------------------------------------------------------------------------------------

    def _settle(self, run: Run) -> bool:
        """Observe a started run and update its status. True if it is finished, or waits for its next attempt."""
        found = self._up_to_date(run)
        if found is None or is_queued(found.status, found.attempt):
            return True
        run, attempt_folder = found, self.attempt_folder(found)
        watched, executor = self.watched[run.id], self.executors.of(run)
        if not watched.is_due(executor, attempt_folder):
            return False
        stop = self.home.run(run.id).stop_reason()
        is_resolved = executor.is_resolved(attempt_folder, is_stopping=stop is not None)
        if isinstance(executor, EngineExecutor):
            self.record_job(run, executor.handle(attempt_folder), executor.observation(attempt_folder))
            words = "; ".join(filter(None, [self.queued_dependencies.words(run), executor.waits_for(attempt_folder)]))
            self.record_waiting(run, words)
        if not is_resolved:
            return False
        if stop is None and executor.is_restarted(attempt_folder):
            why = executor.restart_reason(attempt_folder)
            return why is not None and self._go_on(run, attempt_folder, why)
        seen = active_runs.observe_replicas(executor, watched, run, attempt_folder)
        is_early = run.status in (Status.SCHEDULED, Status.BUILDING) or (
            run.status == Status.STARTING and isinstance(executor, EngineExecutor)
        )
        if is_early and all(observed.state == ReplicaPhase.ABSENT for observed in seen.values()):
            return self._start_again(run, attempt_folder, seen, stop)
        active_runs.save_replicas(self.store, watched, run, seen, self.facts)
        self.indexers.run_pass(run, attempt_folder.replicas)
        now = AttemptOutcome.of(watched.plan, seen, is_stopping=stop is not None)
        if now.has_run and self.change(run, Status.RUNNING, f"{len(seen)} replicas" if len(seen) > 1 else "started"):
            run = run._replace(status=Status.RUNNING)
        if now.is_running:
            number = watched.how_to_end(attempt_folder, now, self.clock(), stop)
            self._end(run, attempt_folder, seen, number, all_of_it=stop is not None)
        holds.note_hold(self, run, attempt_folder)
        return now.is_settled and self._conclude(run, seen, now, stop)

    def _conclude(self, run: Run, seen: Mapping[str, ReplicaState], now: AttemptOutcome, stop: str | None) -> bool:
        """Handle an attempt that has ended. Unless it finished, wait until its engine cannot restart it any more."""
        attempt_folder = self.attempt_folder(run)
        if any(observed.end is not None and observed.end.cause == Cause.LOST for observed in seen.values()):
            self.executors.sweep(run)  # an agent that ended normally left no processes
        verdict = Observation(ENDED) if now.is_finished else self.executors.of(run).verdict(attempt_folder)
        if verdict is None:
            self._end(run, attempt_folder, seen, signal.SIGTERM if stop is not None else None, all_of_it=True)
            return False
        watched = self.watched[run.id]
        if holds.is_held(watched, now.failed):
            stop = None  # it ended the hold; the run had failed
        if now.failed is not None and not now.is_finished and stop is None:
            if now.failed.end.cause == Cause.STOPPED or verdict.cause == Cause.MEMORY:
                seen = active_runs.apply_verdict(seen, verdict)
                now = now._replace(failed=AttemptOutcome.of(watched.plan, seen, is_stopping=False).failed)
            active_runs.save_replicas(self.store, watched, run, seen, self.facts, now.failed)
        decision = retry.decide(
            now,
            stop=stop,
            stopped_by_engine=verdict.why if verdict.cause == Cause.STOPPED else None,
            is_external=run.backend == OUTSIDE,
            restarts=watched.restarts,
            max_restarts=watched.plan.max_restarts,
        )
        self._carry_out(run, seen, now, decision)
        return True

    def _carry_out(
        self, run: Run, seen: Mapping[str, ReplicaState], now: AttemptOutcome, decision: retry.Decision
    ) -> None:
        match decision.action:
            case Action.SUCCEED:
                self.finish(run, Status.SUCCEEDED, active_runs.success_reason(run, seen))
            case Action.STOP:
                self.finish(run, Status.STOPPED, decision.reason)
            case Action.RESUME:
                self._go_on(run, self.attempt_folder(run), decision.reason)
            case Action.RESTART:
                self.record_failure(run, now.failed)
                self.indexers.finish(run)
                self.change(run, Status.WARNING, decision.reason)
                self.watched.pop(run.id, None)
            case Action.FAIL:
                self.record_failure(run, now.failed)
                self.finish(run, Status.FAILED, decision.reason)

    def _go_on(self, run: Run, attempt_folder: AttemptFolder, why: str) -> bool:
        """Continue with the next attempt, without a failure: the engine restarts the job, or its segment ended."""
        watched = self.watched[run.id]
        for name in attempt_folder.replicas:
            if (attempt_folder.folder(name) / run_paths.AGENT).exists():
                attempts.record_lost(attempt_folder, name, why)
        seen = active_runs.observe_replicas(self.executors.of(run), watched, run, attempt_folder)
        active_runs.save_replicas(self.store, watched, run, seen, self.facts)
        self.indexers.finish(run)
        self.change(run, Status.RESUMING, why)
        self.watched.pop(run.id, None)
        return True

    def _start_again(
        self, run: Run, attempt_folder: AttemptFolder, seen: Mapping[str, ReplicaState], stop: str | None
    ) -> bool:
        """No replica is visible yet: start the attempt again if it has not begun."""
        executor = self.executors.of(run)
        if executor.has_begun(run, attempt_folder):
            if isinstance(executor, EngineExecutor):
                early = early_status(executor, attempt_folder)
                if early is not None:
                    self.change(run, *early)
                if stop is not None:
                    self._end(run, attempt_folder, seen, signal.SIGTERM, all_of_it=True)
            return False  # a later pass observes it
        if stop is not None:
            self.finish(run, Status.STOPPED, stop)
            return True
        self._start(run)
        return False

    def _end(
        self,
        run: Run,
        attempt_folder: AttemptFolder,
        seen: Mapping[str, ReplicaState],
        number: signal.Signals | None,
        *,
        all_of_it: bool,
    ) -> None:
        watched, now = self.watched[run.id], time.monotonic()
        if number is None:
            return
        if watched.asked_to_end is None or now - watched.asked_to_end > 1.0:
            watched.asked_to_end = now
            watched.look_at = now  # a job that waits ends at once
            self.has_acted = True
            self.executors.of(run).signal(attempt_folder, seen, number, all_of_it=all_of_it)


def _note_starts(scheduler: Scheduler, guarded: dependencies.Guard) -> None:
    """Wait for the agents that were requested, and record that they have started. They start at the same time."""
    results = scheduler.executors.here.started()
    for run in [run for run in scheduler.started if run.id in results]:
        guarded(partial(_note_start, scheduler, results[run.id]), run, None)


def _note_start(scheduler: Scheduler, fault: Exception | None, run: Run) -> None:
    if fault is None:
        scheduler.change(run, Status.STARTING, "agents started")
    elif isinstance(fault, SubprocessError):  # the next pass finds all replicas lost, and retries or fails the run
        runner.fail_start(scheduler.attempt_folder(run), fault)
    else:
        scheduler.trouble = f"run {run.id}: {fault}"  # the next pass looks for its agents, and starts it again


def _apply_refusals(scheduler: Scheduler, guarded: dependencies.Guard) -> None:
    """Fail the runs whose submission was rejected."""
    for executor in scheduler.executors.elsewhere:
        for run_id, result in executor.refusals().items():
            run = scheduler.store.find(run_id)
            refusal = guarded(lambda _: result.result(), run, None)  # noqa: B023 - called at once
            if refusal is not None:
                scheduler.finish(run, Status.FAILED, f"{executor.engine.name} refused the job: {refusal}")


def _start_request(
    scheduler: Scheduler, executor: EngineExecutor, run: Run, working: Path, after: tuple[JobDependency, ...]
) -> StartRequest:
    given = scheduler.home.environment(run.id) | executor.token_for(scheduler.home.path, run)
    is_in_array = not after and (run.group is None or scheduler.groups.makes_arrays(run.group))
    return StartRequest(scheduler.attempt_folder(run), working, given, run.group, not is_in_array, after)


def _working_folder(home: Home, run: Run, *, is_here: bool) -> Path:
    """Raises OSError if the folder in which a run of this machine starts does not exist."""
    working = home.run(run.id).working()
    if working is None:
        raise FileNotFoundError(f"{run_paths.SUBMITTED} in its folder cannot be read")
    if is_here and not working.is_dir():
        raise FileNotFoundError(f"its working folder no longer exists: {working}")
    return working


def _head(store: Store, where: str, waiting: int, page: int) -> list[Run]:
    """The next queued runs. The store sorts by priority, newest first among equals, so this is its end, reversed. Reads
    two pages, for runs that were added since the count."""
    query, first = f"{QUEUED}, {IS_RUN}, {where}", max(0, waiting - page)
    return store.runs(query, sort="priority", limit=2 * page, offset=first)[::-1]
