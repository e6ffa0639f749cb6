"""In-memory state of unfinished runs, and the observed states of their replicas."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from phalanx.backends.contract import LOCAL_BACKENDS, Observation
from phalanx.backends.local.capacity import Capacity, requested_by
from phalanx.ends import Cause, End
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState
from phalanx.home.run_folder import RunFolder
from phalanx.ingest.replica_rows import replica_record
from phalanx.insight import autopsy
from phalanx.insight.autopsy import FirstFailure
from phalanx.insight.stalls import is_stuck, silent_s
from phalanx.scheduler.executors import Executor
from phalanx.store import Run, StatusChange, Store
from phalanx.store.statuses import HELD, Status
from phalanx.stored_plan import StoredPlan, read_plan
from phalanx.tracking.external_folder import BACKEND as OUTSIDE

SYMPTOM_S = 2.0
SERVED_S = 2.0  # for replicas that only serve to end by themselves, when those that decide have finished
ENDING_LOOK_S = 0.3  # how often to look at a remote run that was asked to end
LISTEN_S = 2.0  # interval of the checks for silent or stuck replicas


class AttemptOutcome(NamedTuple):
    """The combined state of all replicas of an attempt."""

    is_running: bool
    has_run: bool  # at least one replica, however briefly
    is_settled: bool  # no replica runs or is still to start
    is_finished: bool
    goes_on: bool  # continues in its next segment
    failed: FirstFailure | None
    ended_at: float = 0.0  # of the last replica that has ended

    @classmethod
    def of(cls, plan: StoredPlan, seen: Mapping[str, ReplicaState], *, is_stopping: bool) -> AttemptOutcome:
        deciding = [seen[name] for name in plan.deciding if name in seen]
        finished = all(is_finished(observed) for observed in deciding or seen.values())
        ends = {name: observed.end for name, observed in seen.items() if observed.end is not None}
        failed = autopsy.first_failure(plan, ends)
        goes_on = failed is None and not finished and any(end.cause == Cause.SEGMENT for end in ends.values())
        if failed is None and not (is_stopping or finished or goes_on):
            failed = autopsy.first_failure(plan, ends, of=(Cause.STOPPED,))  # its agent was stopped from outside
        states = {observed.state for observed in seen.values()}
        is_running = ReplicaPhase.RUNNING in states
        has_run = is_running or any(end.started_at is not None for end in ends.values())
        return cls(
            is_running,
            has_run,
            states.isdisjoint((ReplicaPhase.RUNNING, ReplicaPhase.ABSENT)),
            finished,
            goes_on,
            failed,
            max((end.ended_at for end in ends.values()), default=0.0),
        )


class StartedRuns:
    """The runs that match a query, oldest first. Only those whose row has changed are read again. Their params and
    metrics may be older."""

    def __init__(self, store: Store, query: str) -> None:
        self.store, self.query = store, query
        self._known: dict[int, tuple[tuple[Any, ...], Run]] = {}  # by key: the stamp of the row, and the run
        self._sorted: list[Run] = []

    def read(self) -> list[Run]:
        stamps = {stamp[0]: stamp for stamp in self.store.stamps(self.query)}
        changed = [key for key, stamp in stamps.items() if key not in self._known or self._known[key][0] != stamp]
        if changed or len(stamps) != len(self._known):
            known = {key: found for key, found in self._known.items() if key in stamps}
            known.update((key, (stamps[key], run)) for key, run in self.store.by_key(changed))
            self._known = known
            ordered = sorted(known.items(), key=lambda item: (item[1][1].created_at, item[0]))
            self._sorted = [run for _, (_, run) in ordered]
        return list(self._sorted)


@dataclass(slots=True)
class ActiveRun:
    """In-memory state of an unfinished run. All of it can be read again from the run's folder."""

    plan: StoredPlan
    share: Capacity
    number: int  # of its last status
    at: datetime  # of its last status
    restarts: int  # since it was submitted or resumed
    facts: Mapping[str, Any] | None = None  # the facts file of its attempt
    kept: Any = None  # attempt and replica states that were last written to the store
    asked_to_end: float | None = None  # time of the last signal to end
    absent_since: float | None = None  # when an agent was first found missing
    look_at: float = 0.0  # earliest time of the next look
    folder: AttemptFolder | None = None  # of its attempt
    job: tuple[str, str] | None = None  # handle and nodes that were last written to the store
    waits_for: str | None = None  # the waiting reason that was last written to the store
    listen_at: float = 0.0
    is_hold_noted: bool = False  # its last status says that it is held

    @classmethod
    def read(cls, folder: RunFolder, history: list[StatusChange]) -> ActiveRun:
        """Raises OSError if the plan is missing, PlanDamaged."""
        plan = read_plan(folder.path)
        begun = max((n for n, change in enumerate(history) if change.status == Status.RESUMING), default=0)
        return cls(
            plan=plan,
            share=requested_by(plan),
            number=len(history),
            at=history[-1].at if history else datetime.fromtimestamp(0, UTC),
            restarts=sum(change.status == Status.WARNING for change in history[begun:]),
            is_hold_noted=bool(history) and history[-1].reason.startswith(f"{HELD} "),
        )

    @property
    def hold_s(self) -> float | None:
        """How long its current attempt is held after a failure: none is if a restart follows."""
        return self.plan.hold_s if self.restarts >= self.plan.max_restarts else None

    def is_due(self, executor: Executor, attempt_folder: AttemptFolder) -> bool:
        """Whether to look at it in this pass."""
        now = time.monotonic()
        if now < self.look_at:
            return False
        pause_s = executor.pause_s(attempt_folder)
        self.look_at = now + (pause_s if self.asked_to_end is None else min(pause_s, ENDING_LOOK_S))
        return True

    def how_to_end(
        self, attempt_folder: AttemptFolder, picture: AttemptOutcome, now: float, stop: str | None
    ) -> signal.Signals | None:
        """The signal for the replicas that still run; None to let them run. SIGQUIT makes them print their stacks."""
        if stop is not None:
            return signal.SIGTERM
        if picture.is_finished:
            is_just_now = 0.0 <= now - picture.ended_at <= SERVED_S  # a clock elsewhere may be ahead
            return None if is_just_now else signal.SIGTERM
        failed = picture.failed
        if failed is None:
            return signal.SIGQUIT if not picture.goes_on and self._is_dead(attempt_folder) else None
        if not failed.is_symptom:
            return signal.SIGTERM
        # A replica may report the loss of a peer before that peer has ended: the peer gets a moment to end by itself.
        return signal.SIGQUIT if now - failed.end.ended_at > SYMPTOM_S else None

    def _is_dead(self, attempt_folder: AttemptFolder) -> bool:
        """Whether all replicas have been silent for longer than `stall_timeout` allows, or are stuck for good."""
        began = time.monotonic()
        if began < self.listen_at:
            return False
        allowed_s = self.plan.stall_timeout_s
        is_dead = (allowed_s is not None and silent_s(attempt_folder) > allowed_s) or is_stuck(attempt_folder)
        self.listen_at = time.monotonic() + max(LISTEN_S, 20 * (time.monotonic() - began))  # reading many logs is slow
        return is_dead


def due(
    runs: Sequence[Run],
    watched: Mapping[str, ActiveRun],
    elsewhere: Container[str],
    most_s: float,
    late: list[ActiveRun],
) -> Iterator[Run]:
    """The runs to look at in this pass: all that are new or of this machine, and those `elsewhere` that have waited the
    longest for it, until this took so much CPU time. The others are `late`: they wait for a later pass."""
    now, began_s = time.monotonic(), time.thread_time()
    remote: list[tuple[float, int, Run]] = []
    for place, run in enumerate(runs):
        known = watched.get(run.id)
        if known is None or run.id not in elsewhere:
            yield run
        elif now >= known.look_at:
            remote.append((known.look_at, place, run))
    for _, _, run in sorted(remote):
        known = watched.get(run.id)
        if known is None or time.thread_time() - began_s < most_s:
            yield run
        else:
            late.append(known)


def observe_replicas(
    executor: Executor, watched: ActiveRun, run: Run, attempt_folder: AttemptFolder
) -> dict[str, ReplicaState]:
    """Observe the replicas that have a command. Replicas that lost their agent, or never got one, are recorded as
    lost."""
    idle = {replica.name for replica in watched.plan.replicas if not replica.argv}
    attempt_folder = attempt_folder._replace(
        replicas=tuple(name for name in attempt_folder.replicas if name not in idle)
    )
    before = watched.kept[1] if watched.kept is not None and watched.kept[0] == run.attempt else {}
    while True:  # until no new loss is found: one replica may be lost while another is recorded
        seen = executor.observe(attempt_folder)
        lost = [name for name, observed in seen.items() if observed.state == ReplicaPhase.LOST]
        for name in lost:
            seen_before = before.get(name, ("",))[0] == ReplicaPhase.RUNNING
            observed = seen[name]
            attempts.record_lost(
                attempt_folder, name, observed.message, cause=observed.cause, lines=observed.lines, just_now=seen_before
            )
        missing = [name for name, observed in seen.items() if observed.state == ReplicaPhase.ABSENT]
        if missing and watched.absent_since is None:
            watched.absent_since = time.monotonic()
        is_early = run.status in (Status.SCHEDULED, Status.BUILDING)
        interrupted = is_early and len(missing) == len(seen)  # then it is started again
        if missing and not interrupted and not executor.may_appear(run, seen, watched.absent_since or 0.0):
            for name in missing:
                attempts.record_lost(attempt_folder, name, "its agent never started")
        elif not lost:
            return seen


def apply_verdict(seen: Mapping[str, ReplicaState], verdict: Observation) -> Mapping[str, ReplicaState]:
    """Add the engine's cause to stopped replicas, whose agents got a signal without a reason, and to killed ones if it
    is memory: of a command under a shell, an agent sees only an exit code."""
    if not verdict.why or verdict.cause in (Cause.STOPPED, Cause.FINISHED):
        return seen
    return {
        name: observed._replace(end=observed.end._replace(cause=verdict.cause, message=verdict.why))
        if observed.end is not None and _is_explained(observed.end, verdict)
        else observed
        for name, observed in seen.items()
    }


def _is_explained(end: End, verdict: Observation) -> bool:
    was_killed = end.signal == signal.SIGKILL or end.code == 128 + signal.SIGKILL
    return end.cause == Cause.STOPPED or (verdict.cause == Cause.MEMORY and end.cause == Cause.ERROR and was_killed)


def hosts_of(run: Run, facts: Mapping[str, Any]) -> Callable[[str], str | None]:
    """Where the running replicas of an attempt are, by name, from the facts that it was started with."""
    nodes = facts.get("node")
    known = nodes if isinstance(nodes, dict) else {}
    ours = socket.gethostname() if run.backend in LOCAL_BACKENDS and run.backend != OUTSIDE else None
    return lambda name: known.get(name) or ours


def save_replicas(  # noqa: PLR0913, PLR0917
    store: Store,
    watched: ActiveRun,
    run: Run,
    seen: Mapping[str, ReplicaState],
    facts_of: Callable[[Run], Mapping[str, Any]],
    failed: FirstFailure | None = None,
) -> None:
    """Write the replicas to the store if their states have changed. `facts_of` reads the facts of the attempt."""
    facts = {name: (observed.state, observed.pid) for name, observed in seen.items()}
    if watched.kept != (run.attempt, facts) or failed is not None:
        planned, hosts = watched.plan.by_name, hosts_of(run, facts_of(run))
        store.put_replicas(
            [replica_record(run, planned[name], observed, failed, hosts(name)) for name, observed in seen.items()]
        )
        watched.kept = (run.attempt, facts)


def is_finished(observed: ReplicaState) -> bool:
    return observed.end is not None and observed.end.cause == Cause.FINISHED


def success_reason(run: Run, seen: Mapping[str, ReplicaState]) -> str:
    """The reason of a success. A run that is only tracked reports its own message."""
    ends = [observed.end for observed in seen.values() if observed.end is not None]
    said = [end.message for end in ends] if run.backend == OUTSIDE else []
    return next(filter(None, said), "finished")
