"""Runs the scheduler's loop: in a foreground `run`, in a background process that exits when idle, or in a server."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from phalanx.errors import SystemFault, is_transient
from phalanx.home.home import Home
from phalanx.home.lease import Lease
from phalanx.scheduler.unfinished import has_work
from phalanx.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phalanx.agent.fork_server import ForkServer
    from phalanx.scheduler.loop import Scheduler

TURN_S = 0.05
ELSEWHERE_S = 0.25  # the same while all started runs are remote
IDLE_S = 3.0  # after so long without work, the background scheduler exits
TROUBLE_S = 600.0  # after so long with errors only, it gives up


class SchedulerRunner:
    """Schedules while no other process holds the lease. Every command that waits for a run, or shows one, has one."""

    def __init__(
        self, home: Home, store: Store, *, makes_ticks: bool = False, fork_server: ForkServer | None = None
    ) -> None:
        """`makes_ticks`: whether it starts the pipelines of schedules. `fork_server`: one that was started early."""
        self.home = home
        self.store = store
        self.makes_ticks = makes_ticks
        self.lease = Lease(home)
        self.scheduler: Scheduler | None = None
        self.fork_server = fork_server
        self.took_s = self.last_took_s = 0.0  # CPU time of a pass

    def run_pass(self) -> int | None:
        """One pass of the loop, if the lease is ours. Returns the number of unfinished runs; None without the lease."""
        if not self.lease.take():
            return None
        if self.scheduler is None:
            from phalanx.scheduler.loop import Scheduler  # slow, and most commands find nothing to schedule

            self.scheduler = Scheduler(self.home, self.store)
            if self.fork_server is not None:
                self.scheduler.executors.here.fork_server = self.fork_server
            self.scheduler.makes_ticks = self.makes_ticks
        began = time.thread_time()
        left = self.scheduler.run_pass()
        took_s = time.thread_time() - began
        self.took_s, self.last_took_s = min(took_s, self.last_took_s), took_s  # ignores a single slow pass
        return left

    @property
    def has_acted(self) -> bool:
        """Whether the last pass started or ended anything."""
        return self.scheduler is not None and self.scheduler.has_acted

    @property
    def pause_s(self) -> float:
        """The pause until the next pass. While all runs are remote, it limits the load to a small part of a core."""
        if self.scheduler is None or not self.scheduler.is_idle_here:
            return TURN_S
        return max(ELSEWHERE_S, 20 * self.took_s)

    def pause(self) -> None:
        """Wait until the next pass. A request to stop a run ends the pause, and so does the end of an agent here: then
        passes take at most half of a core."""
        until, known = time.monotonic() + self.pause_s, set(self.home.asked_to_stop())
        while (left_s := until - time.monotonic()) > 0 and known.issuperset(self.home.asked_to_stop()):
            if self._has_agent_ended(min(TURN_S, left_s)):
                time.sleep(min(self.last_took_s, max(0.0, until - time.monotonic())))
                return

    def _has_agent_ended(self, within_s: float) -> bool:
        if self.scheduler is not None:
            return self.scheduler.executors.here.wait_for_end(within_s)
        time.sleep(within_s)
        return False

    def close(self) -> None:
        """Close the threads and connections of the scheduler."""
        if self.scheduler is not None:
            self.scheduler.close()
            self.scheduler = None
        if self.fork_server is not None:  # the scheduler has used it, or was in another process
            self.fork_server.close()

    def release(self) -> None:
        """Release the lease, then start a background scheduler if work is left. In this order: a process that found the
        lease taken has exited, and relies on this one for its run."""
        self.close()
        held = self.lease.held
        self.lease.release()
        self.lease.close()
        if held and has_work(self.store):
            start_background(self.home)


def start_early(home: Home, environment: Mapping[str, str]) -> ForkServer | None:
    """Start the process that forks agents while a run with such an environment is prepared, so that its start does not
    wait for that. None if another process schedules."""
    if Lease.seems_taken(home):
        return None
    from phalanx.backends.local import runner

    return runner.start_early(home.agents, environment)


def schedule_once(home: Home, store: Store) -> None:
    """Update runs before they are shown: if no scheduler is active, run one pass and start one in the background."""
    if store.active() or home.arrived():
        runner = SchedulerRunner(home, store)
        try:
            runner.run_pass()
        finally:
            runner.release()


def run_until_idle(home: Home, store: Store, idle_s: float = IDLE_S) -> None:
    """The background scheduler. Returns when another one has the lease, or after `idle_s` without work."""
    runner = SchedulerRunner(home, store)
    try:
        _serve_until_idle(runner, idle_s)
    finally:
        runner.close()


def _serve_until_idle(runner: SchedulerRunner, idle_s: float) -> None:
    home, store = runner.home, runner.store
    quiet_since = well_since = time.monotonic()
    logged = ""
    while True:
        try:
            left = runner.run_pass()
            well_since = time.monotonic()
            logged = _log_once(runner.scheduler.trouble if runner.scheduler else "", logged)
        except (OSError, SystemFault) as fault:  # a full disk, a database that restarts
            if not is_transient(fault) or not home.runs.is_dir() or time.monotonic() - well_since > TROUBLE_S:
                raise
            logged = _log_once(str(fault), logged)
            time.sleep(1.0)
            continue
        if left is None:
            return
        if left and has_work(store):
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > idle_s:
            runner.release()
            return
        runner.pause()


def _log_once(trouble: str, logged: str) -> str:
    """Write an error to the background scheduler's log, once."""
    if trouble != logged:
        print(f"{datetime.now(UTC):%F %T} {trouble}", file=sys.stderr, flush=True)
    return trouble


def start_background(home: Home) -> None:
    """Start a scheduler that outlives this process. A second one is harmless: it finds the lease taken and exits."""
    import subprocess  # slow, and most commands leave nothing to schedule
    from threading import Thread

    log = os.open(home.path / "scheduler.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "phalanx.scheduler", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log)
    Thread(target=process.wait, daemon=True).start()  # a notebook may live longer: no zombie stays behind
