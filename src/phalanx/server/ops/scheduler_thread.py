"""The scheduler inside the server."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from phalanx.errors import StoreError, SystemFault, is_transient
from phalanx.home.home import Home
from phalanx.scheduler.runner import SchedulerRunner
from phalanx.server.ops import external_sweeper
from phalanx.server.ops.access_log import ServerLog
from phalanx.server.write_gate import WriteGate
from phalanx.store import Store

if TYPE_CHECKING:
    from phalanx.server.ops.metrics import Metrics

IDLE_S = 0.25  # seconds between two passes when no run is active
OTHERS_S = 0.5  # seconds between two checks while another process schedules
TROUBLE_S = 1.0
LONGEST_PAUSE_S = 1.0
RETENTION_LOOK_S = 30.0
ACTIVE_SHARE = 5.0  # a pause is this many times as long as a pass that started or ended runs
QUIET_SHARE = 15.0  # the same after a pass that only read what replicas log


class SchedulerThread:
    """A scheduler runner in a separate thread, with its own store."""

    def __init__(
        self,
        home: Home,
        database: str | None,
        turns: WriteGate | None = None,
        metrics: Metrics | None = None,
        log: ServerLog | None = None,
    ) -> None:
        self.home = home
        self.database = database
        self.turns = turns or WriteGate()
        self.metrics = metrics
        self.log = log or ServerLog()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._work, name="phalanx-scheduling")
        self._logged = ""
        self._retention_at = float("-inf")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Start the next pass now."""
        self._woken.set()

    def stop(self) -> None:
        self._ended.set()
        self._woken.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                with Store.open(self.home.path, self.database) as store:
                    self._attend(store)
            except (OSError, SystemFault) as fault:  # a full disk, a database that restarts
                if self.metrics is not None and isinstance(fault, StoreError):
                    self.metrics.database_error()
                self._log(str(fault))
                self._ended.wait(TROUBLE_S if is_transient(fault) else 10 * TROUBLE_S)
            except Exception as fault:  # noqa: BLE001 - the edge: scheduling must go on, and the error be reported
                self._log(f"internal error: {type(fault).__name__}: {fault}")
                self._ended.wait(10 * TROUBLE_S)

    def _attend(self, store: Store) -> None:
        runner = SchedulerRunner(self.home, store, makes_ticks=True)
        sweeper = external_sweeper.ExternalRunSweeper(self.home, store)
        try:
            while not self._ended.is_set():
                begun = time.monotonic()
                left = None
                if runner.lease.take():
                    with self.turns.exclusive():
                        left = runner.run_pass()
                if self.metrics is not None:
                    self.metrics.turn(time.monotonic() - begun, is_ours=left is not None)
                if left:
                    sweeper.turn()
                if left is not None:
                    self._apply_retention(runner)
                self._log(runner.scheduler.trouble if runner.scheduler else "")
                pause = OTHERS_S if left is None else runner.pause_s if left else IDLE_S
                # A pass over many replicas takes a while: it must leave time for requests.
                share = ACTIVE_SHARE if runner.has_acted else QUIET_SHARE
                self._woken.wait(min(LONGEST_PAUSE_S, max(pause, share * (time.monotonic() - begun))))
                self._woken.clear()
        finally:
            with suppress(StoreError):
                runner.release()

    def _apply_retention(self, runner: SchedulerRunner) -> None:
        """Start it, if config.yml of the home says so and its time has come."""
        now = time.monotonic()
        if now < self._retention_at or runner.scheduler is None:
            return
        self._retention_at = now + RETENTION_LOOK_S
        settings = runner.scheduler.notices.settings()
        if settings is not None and settings.gc_every_s is not None:
            from phalanx.retention.sweep import is_due, start_sweep

            if is_due(self.home.path, settings.gc_every_s, time.time()):
                start_sweep(self.home)

    def _log(self, trouble: str) -> None:
        if trouble and trouble != self._logged:
            self.log.trouble(trouble)
        self._logged = trouble
