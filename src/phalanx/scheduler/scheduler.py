"""The one loop with effects. Level-triggered: every turn looks at what is, and does the next right thing.

Nothing is remembered between turns that the runs' folders do not hold, so whoever takes the lease next goes on where
the last one was killed. Order of every change: first the run's history, then the store.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, TypeVar

from phalanx.backends import local_running
from phalanx.backends.local_running import Seat, Sighting
from phalanx.errors import CallError
from phalanx.naming import named
from phalanx.scheduler import failures, settling
from phalanx.scheduler.failures import Failure
from phalanx.scheduler.gathering import Gatherers
from phalanx.scheduler.home import BALLAST_BYTES, Home, RunFolder
from phalanx.scheduler.machine import NOTHING, Share, asked_by, excess, hand_out, this_machine
from phalanx.scheduler.resuming import heed_resumes
from phalanx.scheduler.run_tokens import server_environment
from phalanx.scheduler.silence import is_stuck, silent_s
from phalanx.scheduler.statuses import DONE, Status, may_follow
from phalanx.store import Replica, Run, StatusChange, Store, StoreError
from phalanx.tracking.folders import BACKEND as OUTSIDE
from phalanx.tracking.folders import REPLICA

HELPER_ROLES = ("ps", "server")  # they serve for ever: the run is over without them
STARTING_PATIENCE_S = 60.0  # for an agent to say that it is there, while there still is one that may
LOOK_FOR_AGENTS_S = 0.5  # how often to look whether there is
ADOPT_S = 1.0  # how often to look for folders without rows, when there are new folders
GRACE_S = 10.0
SYMPTOM_S = 2.0
LISTEN_S = 2.0  # how often to look whether anybody says anything
PAGE = 20  # queued runs looked at in a turn: a turn must not take longer when thousands wait
QUEUED = "status:created|resuming|warning"
STARTED = "status:building|scheduled|starting|running|unknown"
UNFINISHED = f"{QUEUED}|{STARTED.partition(':')[2]}"
OURS = f"{UNFINISHED}, backend:~{OUTSIDE}"  # whoever only tracks a run need not be waited for
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Watched:
    """What we know of a run that is not over. Its folder has all of it: forgetting one costs a look, nothing else."""

    plan: Any
    share: Share
    number: int  # of its last status
    at: datetime  # of its last status
    restarts: int  # since it was submitted or resumed
    facts: Mapping[str, Any] | None = None  # what its attempt was started with
    kept: Any = None  # what the store was last told of its replicas
    asked_to_end: float | None = None  # when we last told it to
    absent_since: float | None = None  # when we first missed an agent
    look_for_agents_at: float = 0.0
    listen_at: float = 0.0

    @classmethod
    def read(cls, folder: RunFolder, history: list[StatusChange]) -> Watched:
        """Raises whatever a plan that is not there, or not one, makes us raise."""
        plan = json.loads(folder.plan_file.read_bytes())
        begun = max((n for n, change in enumerate(history) if change.status == Status.RESUMING), default=0)
        return cls(
            plan=plan,
            share=asked_by(plan),
            number=len(history),
            at=history[-1].at if history else datetime.fromtimestamp(0, UTC),
            restarts=sum(change.status == Status.WARNING for change in history[begun:]),
        )

    def will_never_come(self, run: Run, seen: Mapping[str, Sighting]) -> bool:
        """The agents that are missing: nobody is left who may start one, or it has taken too long."""
        now = time.monotonic()
        if self.absent_since is None:
            self.absent_since, self.look_for_agents_at = now, now + LOOK_FOR_AGENTS_S
        if now < self.look_for_agents_at:
            return False
        self.look_for_agents_at = now + LOOK_FOR_AGENTS_S
        late = now - self.absent_since > STARTING_PATIENCE_S
        return late or not local_running.is_starting(run.id, seen.values())

    def how_to_end(self, seat: Seat, failed: Failure | None, now: float) -> signal.Signals | None:
        """What still runs, though nobody asked for its end; None: not at all. SIGQUIT has it say where it was."""
        if failed is None:
            return signal.SIGQUIT if self._is_dead(seat) else None
        if not failed.is_symptom:
            return signal.SIGTERM
        # Who says that it lost another may be faster than the one it lost: that one has a moment to end by itself.
        return signal.SIGQUIT if now - failed.end["ended_at"] > SYMPTOM_S else None

    def _is_dead(self, seat: Seat) -> bool:
        """Whether nobody has said anything for as long as the file allows; or nobody ever will."""
        began = time.monotonic()
        if began < self.listen_at:
            return False
        allowed_s: float | None = self.plan.get("stall_timeout_s")
        is_dead = (allowed_s is not None and silent_s(seat) > allowed_s) or is_stuck(seat)
        self.listen_at = time.monotonic() + max(LISTEN_S, 20 * (time.monotonic() - began))  # many logs take a while
        return is_dead


class Scheduler:
    """The clock gives the times of statuses. How long something takes is measured by another one, which never jumps."""

    def __init__(self, home: Home, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.store = store
        self.clock = clock
        self.room, self.gpus = this_machine()
        self.watched: dict[str, Watched] = {}
        self.gatherers = Gatherers(home, store)
        self.started: list[Run] = []
        self.looked_at = (-1, -1)  # the runs' folder at our last two looks for new ones
        self.look_at = float("-inf")
        self.trouble = ""  # what last went wrong, for whoever wants to tell
        home.hold_ballast()
        home.tidy()

    def turn(self) -> int:
        """One look at everything. Answers how many runs are not over yet."""
        self._adopt()
        for run_id in self.home.asked_to_stop():
            self._heed_stop(run_id)
        self.started = self.store.runs(STARTED, sort="created_at", limit=None)
        used = NOTHING
        for run in self.started:
            if not self._guarded(self._settle, run, False):
                # Of one that we could not look at we do not know what it uses: then nothing is started beside it.
                used += self.watched[run.id].share if run.id in self.watched else self.room
        waiting = self.store.count(QUEUED)
        unfinished = len(self.started) + waiting
        # The list's order is by priority and, of equals, the youngest first: the end of it, read backwards, is next.
        head = self.store.runs(QUEUED, sort="priority", limit=2 * PAGE, offset=max(0, waiting - PAGE))
        for run in reversed(head):  # twice a page, for those that came since we counted
            taken = self._guarded(lambda run: self._place(run, used), run, None)  # noqa: B023 - called at once
            if taken is None:
                break  # strictly in order: smaller ones that come later must not starve it
            used += taken
        return unfinished

    def _guarded(self, act: Callable[[Run], Answer], run: Run, otherwise: Answer) -> Answer:
        """What goes wrong with one run must not hold up the others. What we believed of it is looked up again."""
        try:
            return act(run)
        except (OSError, StoreError) as fault:
            self.trouble = f"run {run.id}: {fault}"
            self.watched.pop(run.id, None)
            is_full = isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT)
            if is_full or shutil.disk_usage(self.home.path).free < BALLAST_BYTES:
                self.home.drop_ballast()
            return otherwise

    # what is there -----------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Runs whose folders are there and whose rows are not: their submitter was killed in between."""
        take_in(self.home, self.store, self.home.arrived())
        heed_resumes(self.home, self.store)
        now = time.monotonic()
        changed = self.home.runs.stat().st_mtime_ns
        # File times are coarse: only when it was the same twice, some time apart, can nothing have come in between.
        if now < self.look_at or self.looked_at == (changed, changed):
            return
        self.looked_at = (self.looked_at[1], changed)
        take_in(self.home, self.store, set(self.home.run_ids()) - self.store.ids())
        self.look_at = now + max(ADOPT_S, 20 * (time.monotonic() - now))  # a home of 100,000 runs takes a while

    def _up_to_date(self, run: Run) -> Run | None:
        """The run as its history has it, when a scheduler was killed before it told the store; None when that says
        that it is over, or when its folder cannot be read: then it is over, too."""
        if run.id in self.watched:
            return run
        history = self.home.run(run.id).history()
        last = history[-1] if history else None
        if last is not None and (last.status, last.attempt, last.reason) != (run.status, run.attempt, run.reason):
            with self.store.transaction():
                for change in history:
                    self.store.record(change)
            run = self.store.find(run.id)
            if run.is_done:
                self.home.forget_environment(run.id)
                return None
        try:
            self.watched[run.id] = Watched.read(self.home.run(run.id), history)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            sweep_ours(run)
            self._finish(run, Status.FAILED, "its folder cannot be read")
            return None
        return run

    def seat(self, run: Run) -> Seat:
        names = tuple(named(replica) for replica in self.watched[run.id].plan["replicas"])
        return Seat(self.home.run(run.id).path, run.id, run.attempt, names)

    # placing -----------------------------------------------------------------------------------------------------

    def _heed_stop(self, run_id: str) -> None:
        """A run that is asked to stop while it waits need not come to the head of the queue for that."""
        try:
            run = self.store.find(run_id)
        except CallError:
            if not self.home.run(run_id).path.exists():
                self.home.forget_stop(run_id)
            return
        reason = self.home.run(run_id).stop_reason()
        if reason is not None and run.status in (Status.CREATED, Status.RESUMING, Status.WARNING):
            found = self._guarded(self._up_to_date, run, None)
            if found is not None and found.status == run.status:
                self._guarded(lambda run: self._finish(run, Status.STOPPED, reason), run, None)
        else:
            self.home.forget_stop(run_id)  # over, or started: then it is looked at anyway

    def _place(self, run: Run, used: Share) -> Share | None:
        """Start a queued run when there is room for all of it. Answers what it takes; None when it must wait."""
        found = self._up_to_date(run)
        if found is None or found.status != run.status:
            return NOTHING
        stop = self.home.run(run.id).stop_reason()
        if stop is not None:
            self._finish(run, Status.STOPPED, stop)
            return NOTHING
        asked = self.watched[run.id].share
        beyond = excess(asked, self.room)
        if not (used + asked).fits_in(self.room) and (beyond is None or used != NOTHING):
            return None
        attempt = run.attempt + 1
        reason = f"attempt {attempt}" + (f"; asks for more than this machine has: {beyond}" if beyond else "")
        if not self._change(run, Status.SCHEDULED, reason, attempt=attempt):
            return NOTHING
        run = run._replace(attempt=attempt, status=Status.SCHEDULED)
        self.started.append(run)
        self._start(run)
        return asked

    def _start(self, run: Run) -> None:
        seat = self.seat(run)
        others = [facts for other in self.started if other.id != run.id and (facts := self._facts(other))]
        try:
            submitted = json.loads((seat.run_folder / "submitted.json").read_bytes())
            busy = {gpu for facts in others for given in facts.get("gpus", {}).values() for gpu in given}
            given = self.home.environment(run.id)
            local_running.start(
                seat,
                working=Path(submitted["working"]),
                environment={**given, **server_environment(self.home.path, run, given)},
                gpus=hand_out(self.gpus, busy, self.watched[run.id].plan),
                grace_s=GRACE_S,
                agents=self.home.agents,
            )
        except SubprocessError as fault:  # the next turn finds every replica lost, and knows what follows from that
            local_running.give_up(seat, fault)
        except (OSError, ValueError, KeyError) as fault:
            self._finish(run, Status.FAILED, f"could not be started: {fault}")
        else:
            self._change(run, Status.STARTING, "agents started")

    def _facts(self, run: Run) -> Mapping[str, Any]:
        watched = self.watched.get(run.id)
        if watched is None:
            return {}
        if watched.facts is None:
            watched.facts = local_running.facts_of(self.seat(run)) or None
        return watched.facts or {}

    # settling ----------------------------------------------------------------------------------------------------

    def _settle(self, run: Run) -> bool:
        """Look at a started run and say what has become of it. True when it is over, or waits for its next attempt."""
        found = self._up_to_date(run)
        if found is None or found.status in (Status.CREATED, Status.RESUMING, Status.WARNING):
            return True
        run, seat = found, self.seat(found)
        stop = self.home.run(run.id).stop_reason()
        seen = self._look(run, seat)
        if run.status == Status.SCHEDULED and all(sight.state == "absent" for sight in seen.values()):
            return self._start_again(run, seat, stop)
        self._keep(run, seen)
        self.gatherers.turn(run, seat.replicas)
        essential = [sight for name, sight in seen.items() if name.rpartition("-")[0] not in HELPER_ROLES]
        finished = all(is_finished(sight) for sight in essential or seen.values())
        plan, ends = (
            self.watched[run.id].plan,
            {name: sight.end for name, sight in seen.items() if sight.end is not None},
        )
        failed = failures.find(plan, ends)
        if failed is None and stop is None and not finished:
            failed = failures.find(plan, ends, of=("stopped",))  # somebody else told its agent to end
        running = any(sight.state == "running" for sight in seen.values())
        if running and self._change(run, Status.RUNNING, f"{len(seen)} replicas" if len(seen) > 1 else "started"):
            run = run._replace(status=Status.RUNNING)
        if running:
            number = (
                signal.SIGTERM
                if stop is not None or finished
                else self.watched[run.id].how_to_end(seat, failed, self.clock())
            )
            self._end(run, seen, number)
        if running or any(sight.state == "absent" for sight in seen.values()):
            return False
        if any(sight.end is not None and sight.end["cause"] == "lost" for sight in seen.values()):
            sweep_ours(run)  # an agent that ended in peace left nothing behind
        if finished:
            self._finish(run, Status.SUCCEEDED, "finished")
        elif stop is not None:
            self._finish(run, Status.STOPPED, stop)
        elif failed is not None:
            self._keep(run, seen, failed)
            self._fail(run, failed)
        return True

    def _start_again(self, run: Run, seat: Seat, stop: str | None) -> bool:
        """Whoever started it was killed before it could say that it had. When nothing has begun, we begin anew."""
        local_running.sweep(run.id)
        if any(sight.state != "absent" for sight in local_running.look(seat).values()):
            return False  # the next turn sees how it ended
        if stop is not None:
            self._finish(run, Status.STOPPED, stop)
            return True
        self._start(run)
        return False

    def _look(self, run: Run, seat: Seat) -> dict[str, Sighting]:
        """What is seen of the replicas that run something; whoever lost its agent, or never got one, is declared so."""
        watched = self.watched[run.id]
        idle = {named(r) for r in watched.plan["replicas"] if not r["argv"]}
        seat = seat._replace(replicas=tuple(name for name in seat.replicas if name not in idle))
        before = watched.kept[1] if watched.kept is not None and watched.kept[0] == run.attempt else {}
        while True:  # until all that is seen has a meaning: one may be lost while we declare another so
            seen = local_running.look(seat)
            lost = [name for name, sight in seen.items() if sight.state == "lost"]
            for name in lost:
                seen_before = before.get(name, ("",))[0] == "running"
                local_running.declare_lost(seat, name, seen[name].message, just_now=seen_before)
            missing = [name for name, sight in seen.items() if sight.state == "absent"]
            interrupted = run.status == Status.SCHEDULED and len(missing) == len(seen)  # then we start it again
            if missing and not interrupted and watched.will_never_come(run, seen):
                for name in missing:
                    local_running.declare_lost(seat, name, "its agent never started")
            elif not lost:
                return seen

    def _keep(self, run: Run, seen: Mapping[str, Sighting], failed: Failure | None = None) -> None:
        """The store's rows of the replicas, when anything about them is new."""
        watched = self.watched[run.id]
        facts = {name: (sight.state, sight.pid) for name, sight in seen.items()}
        if watched.kept != (run.attempt, facts) or failed is not None:
            planned = {named(r): r for r in watched.plan["replicas"]}
            self.store.put_replicas([row_of(run, planned[name], sight, failed) for name, sight in seen.items()])
            watched.kept = (run.attempt, facts)

    def _end(self, run: Run, seen: Mapping[str, Sighting], number: signal.Signals | None) -> None:
        watched, now = self.watched[run.id], time.monotonic()
        if number is None:
            return
        if watched.asked_to_end is None or now - watched.asked_to_end > 1.0:
            watched.asked_to_end = now
            local_running.ask_to_end(seen, number)

    def _fail(self, run: Run, failed: Failure) -> None:
        foreign = failed.end["cause"] == "stopped"
        if foreign and run.backend == OUTSIDE:
            self._finish(run, Status.STOPPED, failed.end.get("message", ""))
            return
        self.store.put_fact(run.id, "failure", failed.as_fact(run.attempt))
        reason = f"{failed.replica}: its agent was told to end, not by us" if foreign else failed.reason
        watched = self.watched[run.id]
        allowed = watched.plan.get("max_restarts") or 0
        if watched.restarts < allowed:
            self.gatherers.finish(run)
            self._change(run, Status.WARNING, f"{reason}; restart {watched.restarts + 1} of {allowed} follows")
            self.watched.pop(run.id, None)
        else:
            self._finish(run, Status.FAILED, reason)

    def _finish(self, run: Run, status: Status, reason: str) -> None:
        """In this order: nobody needs its environment any more, but nobody looks for it later either."""
        self.home.forget_environment(run.id)
        self.gatherers.finish(run)
        self._change(run, status, reason)
        self.home.forget_stop(run.id)
        settling.mark(self.home, run.id)
        self.watched.pop(run.id, None)

    def _change(self, run: Run, status: Status, reason: str, attempt: int | None = None) -> bool:
        """A new status: into the history, then into the store. False when it may not follow the one before."""
        if not may_follow(run.status, status):
            return False
        folder, watched = self.home.run(run.id), self.watched.get(run.id)
        number = watched.number if watched else len(folder.history()) or len(self.store.statuses(run.id))
        # Clocks are set back; what comes later is not earlier for that.
        at = ended_elsewhere(folder, run) if status in DONE else None
        now = max(datetime.fromtimestamp(at or self.clock(), UTC), watched.at if watched else run.updated_at)
        change = StatusChange(
            run.id, number + 1, run.attempt if attempt is None else attempt, status, reason[:400], now
        )
        if folder.path.is_dir():
            folder.append(change)
        if watched:
            watched.number, watched.at = change.number, change.at
        self.store.record(change)
        return True


def sweep_ours(run: Run) -> None:
    """What a run's agents left behind. The processes of a run that is only tracked are their user's own."""
    if run.backend != OUTSIDE:
        local_running.sweep(run.id)


def ended_elsewhere(folder: RunFolder, run: Run) -> float | None:
    """When a run ended that somebody else ran: we may hear of it much later."""
    if run.backend != OUTSIDE:
        return None
    end = local_running.look(Seat(folder.path, run.id, run.attempt, (REPLICA,)))[REPLICA].end
    return float(end["ended_at"]) if end else None


def is_finished(sight: Sighting) -> bool:
    return sight.end is not None and sight.end["cause"] == "finished"


def row_of(run: Run, replica: Mapping[str, Any], sight: Sighting, failed: Failure | None = None) -> Replica:
    """What the store has of a replica; of one that another took with it, that."""
    end = sight.end or {}
    taken = failed.others.get(named(replica)) if failed is not None else None
    status = {"absent": "starting", "running": "running"}.get(sight.state)
    if status is None:
        status = {"finished": "succeeded", "stopped": "stopped"}.get(end.get("cause", ""), "failed")
    started, ended = end.get("started_at"), end.get("ended_at")
    return Replica(
        run_id=run.id,
        attempt=run.attempt,
        role=replica["role"],
        number=replica["index"],
        local=replica.get("local", 0),
        rank=replica["rank"],
        status=status,
        reason=taken or end.get("message", ""),
        host=end.get("host"),
        pid=sight.pid,
        cause=end.get("cause"),
        code=end.get("code"),
        signal=end.get("signal"),
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
        finished_at=datetime.fromtimestamp(ended, UTC) if ended else None,
        peak=end.get("peak", {}),
    )


def take_in(home: Home, store: Store, run_ids: Iterable[str]) -> None:
    """Rows for runs that have only folders."""
    for run_id in run_ids:
        run = home.run(run_id).read()
        if run is not None:
            add_to_store(store, home.run(run_id), run)
        (home.arrivals / run_id).unlink(missing_ok=True)


def add_to_store(store: Store, folder: RunFolder, run: Run) -> None:
    """A run and its history, as its folder has them, all at once: a row without its first statuses would look
    complete. May be called again."""
    with store.transaction():
        store.add(run)
        for change in folder.history():
            store.record(change)
