"""What a pipeline has done so far, for those who look at it: the command line, the server and Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.home.journal import JournaledFolder, RunJournal
from phalanx.scheduler.pipelines.schedule import RECENT, ScheduleState
from phalanx.scheduler.pipelines.state import ACTIVE, WAITING, OpState, PipelineState, has_slot
from phalanx.scheduler.unfinished import UNFINISHED
from phalanx.spec.model import Operation, thaw
from phalanx.spec.pipelines.schedules import TickTimes
from phalanx.store import Run, Store
from phalanx.store.kinds import PIPELINE, SCHEDULE
from phalanx.store.rows import run_row
from phalanx.submission.ops.factory import OpFactory, op_id, tick_id

Row = dict[str, Any]
ABOUT = (
    *("id", "name", "project", "kind", "status", "reason", "user", "backend"),
    *("created_at", "started_at", "finished_at"),
)
QUEUED = ("created", "resuming", "warning")


class PipelineReport:
    """The ops of a pipeline, or the ticks of a schedule. `update` reads what is new. Raises CallError for a run of
    another kind."""

    def __init__(self, home: Home, store: Store, run: Run) -> None:
        require_pipeline(run)
        self.home, self.store, self.run = home, store, run
        self.factory = OpFactory(home, run)
        self.journal = RunJournal(JournaledFolder(home.run(run.id).path).journal_file)
        self.state = PipelineState(run.id, self.factory.ops, self.factory.pipeline.concurrency)
        self.schedule = ScheduleState([])
        self.runs: dict[str, Run] = {}
        self.update(store, run)

    def update(self, store: Store, run: Run) -> None:
        """Read what is new. Raises CallError if the journal is damaged."""
        self.store, self.run = store, run
        for record in self.journal.read():
            (self.schedule if run.kind == SCHEDULE else self.state).fold(record)
        self.runs = {one.id: one for one in store.runs(f"group:{run.id}", sort="created_at", limit=None)}
        for name in self.factory.ops:
            reused = self.state.states[name].reused
            if reused is not None and reused not in self.runs:
                self.runs |= {one.id: one for one in store.runs(f"id:{reused}", limit=1)}

    def summary(self) -> Row:
        """The pipeline with its ops, edges, states and reasons."""
        row, pipeline = run_row(self.run), self.factory.pipeline
        ops = [self._op(name, op) for name, op in self.factory.ops.items()]
        counts: dict[str, int] = {}
        for op in ops:
            counts[op["status"]] = counts.get(op["status"], 0) + 1
        waiting = self.store.facts(self.run.id).get("waiting") or {}
        return {
            **{name: row[name] for name in ABOUT},
            "waits_for": waiting.get("why"),
            "concurrency": pipeline.concurrency,
            "timeout_s": self.factory.timeout_s,
            "execute_at": pipeline.execute_at,
            **self._ticks(),
            "counts": counts,
            "ops": ops,
            "edges": list(edges(self.factory.ops)),
            "seq": self.state.seq,
        }

    def _ticks(self) -> Row:
        schedule = self.factory.pipeline.schedule
        ticks = {tick_id(self.run.id, at): at for at in reversed(self.schedule.ticks[-RECENT:])}
        following = None
        if schedule is not None and not self.run.is_done:
            following = TickTimes.of(schedule, self.run.created_at).after(self.schedule.last)
        return {
            "schedule": thaw(schedule) if schedule is not None else None,
            "scheduled_by": self.run.group,
            "next_tick": following.isoformat() if following is not None else None,
            "ticks": [
                {
                    "at": at.isoformat(),
                    "run_id": run_id,
                    "status": run.status if (run := self.runs.get(run_id)) else None,
                }
                for run_id, at in ticks.items()
            ],
        }

    def _op(self, name: str, op: Operation) -> Row:
        state, run_id = self.state.states[name], self.state.run_id(name)
        run = self.runs.get(run_id) if run_id is not None else None
        is_own = run is not None and state.reused is None
        return {
            "name": name,
            "kind": str(op.spec.kind) if op.spec is not None else None,
            "status": self._status(state, run),
            "run_id": run_id,
            "runs": [op_id(self.run.id, name, number) for number in range(state.number + 1)],
            "retries": state.retries,
            "max_retries": int(op.settings.get("max_retries", 0)),
            "trigger": op.trigger,
            "dependencies": list(op.upstream),
            "reason": self._reason(name, state, run),
            "started_at": _time(run.started_at) if is_own and run is not None else None,
            "ended_at": datetime.fromtimestamp(state.ended_at, UTC).isoformat() if state.ended_at is not None else None,
            "params": {**thaw(op.spec.params if op.spec is not None else op.params), **state.params},
            "outputs": dict(state.outputs),
            "missing": dict(state.missing),
            "is_reused": state.reused is not None,
        }

    def _status(self, state: OpState, run: Run | None) -> str:
        if state.status == ACTIVE:
            return run.status if run is not None and not run.is_done else "created" if run is None else "running"
        return str(state.status)

    def _reason(self, name: str, state: OpState, run: Run | None) -> str:
        """Why it has its status; of one that waits, for whom."""
        if state.status == WAITING:
            if self.run.kind == SCHEDULE:
                return ""
            return self.state.waits_for(name, time.time(), is_slotless=not self._has_slot(self.factory.ops[name]))
        if state.status == ACTIVE and run is not None:
            waiting = self.store.facts(run.id).get("waiting") if run.status in QUEUED else None
            return str(waiting["why"]) if waiting else run.reason
        return state.why

    def _has_slot(self, op: Operation) -> bool:
        """Whether `concurrency` of an op lets it run beside those of other ticks of its schedule."""
        if self.run.group is None or op.settings.get("concurrency") is None:
            return True
        ticks = self.store.runs(f"group:{self.run.group}, {UNFINISHED}", limit=None)
        return has_slot(op, [self._state_of(tick.id) for tick in ticks])

    def _state_of(self, pipeline_id: str) -> PipelineState:
        records = RunJournal(JournaledFolder(self.home.run(pipeline_id).path).journal_file).read()
        return PipelineState(pipeline_id, self.factory.ops, self.factory.pipeline.concurrency, records)


def edges(ops: dict[str, Operation]) -> Iterator[Row]:
    """Which op waits for which, and why."""
    for name, op in ops.items():
        kinds = {reference.op: "output" for reference in op.references}
        for other in op.upstream:
            yield {"source": other, "target": name, "kind": kinds.get(other, "dependency")}
        for other in op.awaited[len(op.upstream) :]:
            yield {"source": other, "target": name, "kind": "condition"}


def require_pipeline(run: Run) -> None:
    """Raises CallError for a run that is no pipeline."""
    if run.kind not in (PIPELINE, SCHEDULE):
        raise CallError(f"run {run.id} is not a pipeline: its kind is {run.kind}")


def _time(time: datetime | None) -> str | None:
    return time.isoformat() if time is not None else None
