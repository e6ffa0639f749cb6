"""Notices: events of runs that somebody may have to be told of. The scheduler leaves them, and a process sends them.

<home>/notices/<run>.<number>.<event>    `number`: of the status in the run's history, or of the attempt that stalled

A notice is left before the status is written. If the scheduler is killed in between, the same notice is left again, and
nothing is sent before the status is there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError, SpecErrors, SystemFault
from phalanx.home.background import start_module
from phalanx.home.home import Home
from phalanx.locks import locked
from phalanx.spec.model import NotifyEvent
from phalanx.store import Run, Store

if TYPE_CHECKING:
    from phalanx.settings.home_settings import HomeSettings

AGAIN_S = 10.0  # between two starts of the sender
WAITING_S = 15.0  # between two looks for runs that wait for long
QUEUED = ("created", "resuming", "building", "scheduled", "warning")
EVENT_OF = {
    "failed": NotifyEvent.FAILED,
    "upstream_failed": NotifyEvent.FAILED,
    "succeeded": NotifyEvent.SUCCEEDED,
    "stopped": NotifyEvent.STOPPED,
}


class Notice(NamedTuple):
    run_id: str
    number: int
    event: NotifyEvent
    reason: str
    path: Path


def notices_folder(home: Path) -> Path:
    return home / "notices"


def alone(home: Path) -> Path:
    """The lock of the sender."""
    return home / "notices.lock"


def read_notices(home: Path) -> Iterator[Notice]:
    """All notices, oldest first; files that are no notices are left out."""
    folder = notices_folder(home)
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        parts = name.split(".")
        if len(parts) == 3 and parts[1].isdigit() and parts[2] in tuple(NotifyEvent):
            data = read_json(folder / name)
            reason = str(data.get("reason", "")) if isinstance(data, dict) else ""
            yield Notice(parts[0], int(parts[1]), NotifyEvent(parts[2]), reason, folder / name)


class NoticeBoard:
    """Leaves notices, and starts the sender. `sends`: False for a scheduler on a node without network."""

    def __init__(self, home: Home, *, sends: bool = True) -> None:
        self.home = home
        self.sends = sends
        self._settings: tuple[tuple[int, int] | None, HomeSettings | None] = (None, None)
        self._started_at = float("-inf")
        self._looked_at = float("-inf")
        self._waiting: dict[str, float | None] = {}  # by run: after how many seconds it is told of
        self._told: set[tuple[str, int]] = set()

    def leave_end(self, run: Run, status: str, number: int, reason: str) -> None:
        """Leave a notice of a run's end, before the end is recorded. Never raises: a notice is not worth a run."""
        event = EVENT_OF.get(status)
        if event is not None:
            self.leave(run, event, number, reason)

    def leave(self, run: Run, event: NotifyEvent, number: int, reason: str) -> None:
        with suppress(OSError):
            if self._is_wanted(run, event):
                folder = notices_folder(self.home.path)
                folder.mkdir(mode=0o700, exist_ok=True)
                data = json.dumps({"reason": reason, "at": time.time()}).encode()
                write_atomic(folder / f"{run.id}.{number}.{event}", data)

    def _is_wanted(self, run: Run, event: NotifyEvent) -> bool:
        has_own = (self.home.run(run.id).path / run_paths.NOTIFY).exists()
        if not has_own and not self._settings_file().exists():
            return False
        from phalanx.notifications.run_rules import read_rules, rules_of

        settings = self.settings()
        if settings is None:
            return True  # the sender says what is wrong
        found = rules_of(run, read_rules(self.home.run(run.id).path), settings)
        return any(event in one.rule.on or (event is NotifyEvent.WAITING and one.rule.waiting_s) for one in found)

    def settings(self) -> HomeSettings | None:
        """The settings of the home, read again when they change; None if they are invalid."""
        from phalanx.settings.home_settings import read_home_settings

        try:
            state = self._settings_file().stat()
            mark = (state.st_mtime_ns, state.st_size)
        except OSError:
            mark = (0, 0)
        if self._settings[0] != mark:
            try:
                self._settings = (mark, read_home_settings(self.home.path))
            except (CallError, SpecErrors, SystemFault):
                self._settings = (mark, None)
        return self._settings[1]

    def _settings_file(self) -> Path:
        return self.home.path / "config.yml"

    # waiting -----------------------------------------------------------------------------------------------------

    def look_for_waiting(self, store: Store, now: float) -> None:
        """Leave notices of runs that have been in a queue for longer than a rule allows."""
        if time.monotonic() - self._looked_at < WAITING_S:
            return
        self._looked_at = time.monotonic()
        active = [run for run in store.active() if run.status in QUEUED]
        for run in active:
            limit_s = self._limit_s(run)
            waited_s = now - run.updated_at.timestamp()
            if limit_s is not None and waited_s > limit_s:
                self._tell_waiting(run, waited_s)
        self._waiting = {run.id: self._waiting.get(run.id) for run in active}

    def _limit_s(self, run: Run) -> float | None:
        if run.id not in self._waiting:
            from phalanx.notifications.run_rules import read_rules, rules_of

            own, settings = read_rules(self.home.run(run.id).path), self.settings()
            rules = rules_of(run, own, settings) if settings is not None else []
            times = [one.rule.waiting_s for one in rules if one.rule.waiting_s is not None]
            self._waiting[run.id] = min(times, default=None)
        return self._waiting[run.id]

    def _tell_waiting(self, run: Run, waited_s: float) -> None:
        from phalanx.notifications.delivery_log import DeliveryLog

        folder = self.home.run(run.id)
        number = len(folder.history())
        if (run.id, number) in self._told:
            return
        self._told.add((run.id, number))
        known = DeliveryLog(folder.path).read().values()
        if not any((one.event, one.number) == (NotifyEvent.WAITING, number) for one in known):
            reason = f"{run.status} for {waited_s / 60:.0f} min"
            self.leave(run, NotifyEvent.WAITING, number, reason)

    # sending -----------------------------------------------------------------------------------------------------

    def look(self, store: Store, now: float) -> None:
        """Called in every pass: look for runs that wait for long, and for notices that are left."""
        self.look_for_waiting(store, now)
        if time.monotonic() - self._started_at >= AGAIN_S:
            self.start_sender()

    def start_sender(self) -> None:
        """Start the sender, if notices are left and none is at work."""
        if not self.sends:
            return
        with suppress(OSError):
            if not os.listdir(notices_folder(self.home.path)):
                return
            with locked(alone(self.home.path), wait=False) as is_free:
                pass
            if is_free:
                self._started_at = time.monotonic()
                _start_process(self.home)


def _start_process(home: Home) -> None:
    """A second one is harmless: it finds the lock taken and exits."""
    start_module(home, "phalanx.notifications.sender", "notices.log")
