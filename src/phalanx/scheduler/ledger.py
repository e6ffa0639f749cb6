"""What is known of runs that are not over, and what is written down of them: first in the run's history, then in the
store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from phalanx.backends.contract import Observation
from phalanx.backends.local import runner
from phalanx.errors import CallError
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.ingest.indexer import RunIndexers
from phalanx.naming import replica_name
from phalanx.scheduler import post_run
from phalanx.scheduler.active_runs import ActiveRun
from phalanx.store import Run, StatusChange, Store
from phalanx.store.statuses import DONE, Status, may_follow
from phalanx.tracking.external_folder import BACKEND as OUTSIDE
from phalanx.tracking.external_folder import REPLICA


class RunUnreadable(Exception):
    """The folder of a run cannot be read."""


class Ledger:
    """The clock gives the times of statuses. How long something takes is measured by another one, which never jumps."""

    def __init__(self, home: Home, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.store = store
        self.clock = clock
        self.watched: dict[str, ActiveRun] = {}
        self.gatherers = RunIndexers(home, store)

    def catch_up(self, run: Run) -> Run | None:
        """The run as its history has it, when a scheduler was killed before it told the store; None when that says
        that it is over. Raises Unreadable."""
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
            self.watched[run.id] = ActiveRun.read(self.home.run(run.id), history)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise RunUnreadable from None
        return run

    def seat(self, run: Run) -> AttemptFolder:
        names = tuple(replica_name(replica) for replica in self.watched[run.id].plan["replicas"])
        return AttemptFolder(self.home.run(run.id).path, run.id, run.attempt, names)

    def facts(self, run: Run) -> Mapping[str, Any]:
        """What an attempt was started with."""
        watched = self.watched.get(run.id)
        if watched is None:
            return {}
        if watched.facts is None:
            watched.facts = attempts.read_facts(self.seat(run)) or None
        return watched.facts or {}

    def record_waiting(self, run: Run, why: str) -> None:
        """What a run elsewhere waits for, beside it: it may change often, and is no status."""
        watched = self.watched.get(run.id)
        if watched is not None and watched.waits_for != why:
            watched.waits_for = why
            self.store.put_fact(run.id, "waiting", {"why": why, "at": self.clock()} if why else None)

    def is_over(self, run_id: str) -> bool:
        """Of a run of this home."""
        try:
            return self.store.find(run_id).is_done
        except CallError:
            return False

    def record_job(self, run: Run, handle: str | None, seen: Observation | None) -> None:
        """Under which number a run is known elsewhere, and where it is."""
        watched = self.watched.get(run.id)
        nodes = seen.nodes if seen is not None else ""
        if watched is not None and handle is not None and watched.job != (handle, nodes):
            watched.job = (handle, nodes)
            self.store.put_fact(run.id, "job", {"handle": handle, "nodes": nodes})

    def finish(self, run: Run, status: Status, reason: str) -> None:
        """In this order: nobody needs its environment any more, but nobody looks for it later either."""
        self.home.forget_environment(run.id)
        self.gatherers.finish(run)
        self.change(run, status, reason)
        self.home.forget_stop(run.id)
        post_run.enqueue(self.home, run.id)
        self.watched.pop(run.id, None)

    def change(self, run: Run, status: Status, reason: str, attempt: int | None = None) -> bool:
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


def ended_elsewhere(folder: RunFolder, run: Run) -> float | None:
    """When a run ended that somebody else ran: we may hear of it much later."""
    if run.backend != OUTSIDE:
        return None
    end = runner.observe(AttemptFolder(folder.path, run.id, run.attempt, (REPLICA,)))[REPLICA].end
    return end.ended_at if end is not None else None
