"""Who turns the loop: a foreground `run`, a background process that goes away when idle, or a server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from phalanx.errors import SystemFault, is_transient
from phalanx.home.home import Home
from phalanx.home.lease import Lease
from phalanx.scheduler.loop import OURS, Scheduler
from phalanx.store import Store

TURN_S = 0.05
ELSEWHERE_S = 0.25  # the same while all that runs runs on machines of others
IDLE_S = 3.0  # how long the background one stays when nothing is left to do
TROUBLE_S = 600.0  # how long it goes on trying when nothing works


class SchedulerRunner:
    """Schedules while nobody else does. Every command that waits for a run, or looks at one, brings its own."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.lease = Lease(home)
        self.scheduler: Scheduler | None = None
        self.took_s = self.last_took_s = 0.0  # of a core, by a turn

    def run_pass(self) -> int | None:
        """One turn of the loop, if it is ours to turn. Answers how many runs are not over; None when it is not."""
        if not self.lease.take():
            return None
        if self.scheduler is None:
            self.scheduler = Scheduler(self.home, self.store)
        began = time.thread_time()
        left = self.scheduler.run_pass()
        took_s = time.thread_time() - began
        self.took_s, self.last_took_s = min(took_s, self.last_took_s), took_s  # a single long one tells nothing
        return left

    @property
    def pause_s(self) -> float:
        """How long to wait until the next turn: where all goes on elsewhere, we take a small part of a core."""
        if self.scheduler is None or not self.scheduler.is_idle_here:
            return TURN_S
        return max(ELSEWHERE_S, 20 * self.took_s)

    def close(self) -> None:
        """End the threads and connections of the scheduler."""
        if self.scheduler is not None:
            self.scheduler.close()
            self.scheduler = None

    def release(self) -> None:
        """Let go, and leave somebody behind when there is work left. In this order: whoever came while we held the
        lease went away again, and counts on us for the run it came for."""
        self.close()
        held = self.lease.held
        self.lease.release()
        self.lease.close()
        if held and self.store.count(OURS):
            start_background(self.home)


def schedule_once(home: Home, store: Store) -> None:
    """What is shown must be true: when nobody schedules, look at the runs once, and leave someone to go on."""
    if store.active() or home.arrived():
        attendant = SchedulerRunner(home, store)
        try:
            attendant.run_pass()
        finally:
            attendant.release()


def run_until_idle(home: Home, store: Store, idle_s: float = IDLE_S) -> None:
    """The background scheduler. Ends when another one has the lease, or when there was nothing to do for a while."""
    attendant = SchedulerRunner(home, store)
    try:
        _serve_until_idle(attendant, idle_s)
    finally:
        attendant.close()


def _serve_until_idle(attendant: SchedulerRunner, idle_s: float) -> None:
    home, store = attendant.home, attendant.store
    quiet_since = well_since = time.monotonic()
    told = ""
    while True:
        try:
            left = attendant.run_pass()
            well_since = time.monotonic()
            told = _tell(attendant.scheduler.trouble if attendant.scheduler else "", told)
        except (OSError, SystemFault) as fault:  # a full disk, a database that restarts
            if not is_transient(fault) or not home.runs.is_dir() or time.monotonic() - well_since > TROUBLE_S:
                raise
            told = _tell(str(fault), told)
            time.sleep(1.0)
            continue
        if left is None:
            return
        if left and store.count(OURS):
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > idle_s:
            attendant.release()
            return
        time.sleep(attendant.pause_s)


def _tell(trouble: str, told: str) -> str:
    """Into the background scheduler's log, once."""
    if trouble != told:
        print(f"{datetime.now(UTC):%F %T} {trouble}", file=sys.stderr, flush=True)
    return trouble


def start_background(home: Home) -> None:
    """A scheduler that outlives us. Starting one too many is harmless: it finds the lease taken and goes."""
    log = os.open(home.path / "scheduler.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        subprocess.Popen(
            [sys.executable, "-m", "phalanx.scheduler", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log)
