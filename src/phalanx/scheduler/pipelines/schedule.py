"""Schedules in the scheduler's loop: each tick starts a pipeline. Only the scheduler of a server makes ticks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.journal import Record
from phalanx.scheduler.journaled_run import JournaledRun
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.unfinished import UNFINISHED
from phalanx.spec.pipelines.schedules import TickTimes
from phalanx.store import Run
from phalanx.store.statuses import Status
from phalanx.submission.ops.factory import OpFactory, tick_id
from phalanx.submission.submit import NEEDS_SERVER

TICK = "tick"  # the record of a tick
PROGRESS = "schedule"  # fact: the last and the next tick
RECENT = 20


class ScheduleState:
    """The ticks that were made."""

    def __init__(self, records: list[Record]) -> None:
        self.ticks: list[datetime] = []
        for record in records:
            self.fold(record)

    def fold(self, record: Record) -> None:
        if record["what"] == TICK:
            self.ticks.append(datetime.fromisoformat(record["tick"]))

    @property
    def last(self) -> datetime | None:
        return self.ticks[-1] if self.ticks else None


class ActiveSchedule(JournaledRun):
    """An unfinished schedule."""

    def __init__(self, ledger: Ledger, schedule: Run) -> None:
        super().__init__(ledger, schedule)
        self.factory = OpFactory(self.home, schedule)
        fields = self.factory.pipeline.schedule
        assert fields is not None, "a schedule has ticks"
        self.times = TickTimes.of(fields, schedule.created_at)
        self.depends_on_past = bool(fields.get("depends_on_past"))
        self.state = ScheduleState(self.journal.read())
        self.shown: Mapping[str, Any] | None = None

    def step(self, schedule: Run) -> None:
        stop = self.folder.stop_reason()
        if stop is not None:
            self._stop(schedule, stop)
            return
        if not self.ledger.makes_ticks:
            self._show(schedule, NEEDS_SERVER)
            return
        if self.state.last is not None and not self.home.run(tick_id(self.id, self.state.last)).path.exists():
            self._start(self.state.last)  # recorded by a scheduler that was killed
        now = datetime.fromtimestamp(self.ledger.clock(), UTC)
        waits = self._waits_for_past()
        due = self.times.due(self.state.last, now) if waits is None else None
        if due is not None:
            for record in self.journal.append([{"what": TICK, "tick": due.isoformat()}]):
                self.state.fold(record)
            self._start(due)
        if schedule.status != Status.RUNNING:
            self.ledger.change(schedule, Status.RUNNING, "ticks")
        self._show(schedule, waits)
        if self.times.after(self.state.last) is None and not self._left():
            self._finish(Status.SUCCEEDED, f"all its {len(self.state.ticks)} ticks were made")

    def _start(self, at: datetime) -> None:
        """Make the pipeline of a tick. The environment of its submitter is kept with the schedule."""
        self.factory.tick(self.store, at)

    def _waits_for_past(self) -> str | None:
        """What the next tick waits for, beside its time; None: nothing."""
        if not self.depends_on_past or self.state.last is None:
            return None
        before = tick_id(self.id, self.state.last)
        try:
            is_done = self.store.find(before).is_done
        except CallError:
            is_done = True  # it was removed
        return None if is_done else f"waits for pipeline {before} to end (`depends_on_past`)"

    def _left(self) -> list[Run]:
        return self.store.runs(f"group:{self.id}, {UNFINISHED}", limit=None)

    def _stop(self, schedule: Run, why: str) -> None:
        """Stop the pipelines that it started, then itself."""
        left = self._left()
        for pipeline in left:
            self.home.run(pipeline.id).ask_to_stop(why)
        if not left:
            self._show(schedule, None)
            self._finish(Status.STOPPED, why)

    def _show(self, schedule: Run, waits: str | None) -> None:
        following = self.times.after(self.state.last)
        shown = {
            "ticks": len(self.state.ticks),
            "last_tick": self.state.last.isoformat() if self.state.last is not None else None,
            "next_tick": following.isoformat() if following is not None else None,
            "why": waits,
        }
        if shown != self.shown:
            self.store.put_fact(schedule.id, PROGRESS, shown)
            at = f"waits for the tick at {shown['next_tick']}" if following is not None else "has no more ticks"
            self.store.put_fact(schedule.id, "waiting", {"why": f"{at}; {waits}" if waits else at})
            self.shown = shown

    def _finish(self, status: Status, why: str) -> None:
        self.is_over = True
        write_atomic(self.folder.path / run_paths.PROGRESS, json.dumps(self.shown).encode())
        self.ledger.finish(self.store.find(self.id), status, why)
