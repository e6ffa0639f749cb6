"""Pipelines in the scheduler's loop: takes in the ends of ops, decides what runs next, and starts it.

Every end and every decision is in the journal of the pipeline before anything follows from it. After a crash the next
scheduler reads the journal and carries out what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError, SpecErrors
from phalanx.home.journal import JournaledFolder
from phalanx.ingest.adoption import adopt_all
from phalanx.scheduler.journaled_run import JournaledRun
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.pipelines.outputs import OpOutputs, outputs_of
from phalanx.scheduler.pipelines.reuse import ReusableRuns
from phalanx.scheduler.pipelines.state import (
    WAITING,
    Ended,
    PipelineState,
    Start,
    What,
    declared_outputs,
    has_slot,
    retry_delay_s,
)
from phalanx.scheduler.resumes import queue_next_attempt
from phalanx.spec.pipelines.schedules import read_time
from phalanx.store import Run
from phalanx.store.kinds import GROUP
from phalanx.store.statuses import DONE, Status
from phalanx.submission.model import Submission
from phalanx.submission.ops.factory import OpFactory, op_id

MOST_STARTS = 60  # runs that are made in a pass
PROGRESS = "pipeline"  # fact: how many ops have each status


class ActivePipeline(JournaledRun):
    """An unfinished pipeline."""

    def __init__(self, ledger: Ledger, pipeline: Run) -> None:
        super().__init__(ledger, pipeline)
        self.parent = pipeline.group  # the schedule that started it
        self.factory = OpFactory(self.home, pipeline)
        self.state = PipelineState(
            pipeline.id, self.factory.ops, self.factory.pipeline.concurrency, self.journal.read()
        )
        self.reusable = ReusableRuns(self.home, self.store, self.factory)
        self.started = {
            name for name in self.state.active if self.is_carried_out(self._run_id(name), self.state.states[name].after)
        }
        self.shown: Mapping[str, Any] | None = None
        self.seen: tuple[Any, ...] | None = None  # when the runs of its ops were last read

    def _run_id(self, op: str) -> str:
        return op_id(self.id, op, self.state.states[op].number)

    def step(self, pipeline: Run) -> None:
        stop = self.folder.stop_reason()
        if stop is None and self._is_early(pipeline):
            return
        requests = self.folder.requests()
        for name, asked in requests:
            self._take(name, asked)
        self._record(*self._ended())
        self._check_time(pipeline)
        ending = stop or self.state.timeout
        if ending is not None:
            self._stop_all(ending)
        else:
            self._decide()
            self._start_all()
        self._show(pipeline)
        for name, _ in requests:
            self.folder.forget_request(name)
        if self.state.is_over:
            self._conclude(pipeline, stop)

    def _record(self, *contents: Mapping[str, Any]) -> None:
        """Append to the journal, then fold."""
        for record in self.journal.append(contents):
            self.state.fold(record)
            if "op" in record and record["what"] != What.START:
                self.started.discard(record["op"])

    def _take(self, name: str, asked: Mapping[str, Any]) -> None:
        """A request to resume: what did not succeed is decided again."""
        if name not in self.state.taken and asked.get("what") == "rerun":
            why = f"resumed by {asked.get('by') or 'its user'}"
            self._record({"what": What.AGAIN, "ops": self.state.to_resume(), "why": why, "request": name})

    # what happened ---------------------------------------------------------------------------------------------------

    def _ended(self) -> Iterator[dict[str, Any]]:
        """The ends of the runs of ops."""
        stamp = (self.store.stamp_of_parts(self.id), len(self.started)) if self.started else None
        if stamp == self.seen:
            return  # reading each of a thousand runs would take longer than the rest of a pass
        runs = {self._run_id(name): name for name in self.started}
        seen = {stamp.id: stamp.status for stamp in self.store.seen_of(runs)}
        for run_id, name in runs.items():
            if run_id not in seen:
                if self.home.run(run_id).path.exists():
                    adopt_all(self.home, self.store, [run_id])
                else:
                    yield end_record(name, Status.STOPPED, "its run was removed")
            elif seen[run_id] in DONE:
                yield self._end_of(name, self.store.find(run_id))
        self.seen = stamp

    def _end_of(self, name: str, run: Run) -> dict[str, Any]:
        state, op = self.state.states[name], self.factory.ops[name]
        if run.status == Status.SUCCEEDED:
            found = outputs_of(self.home, self.store, run, declared_outputs(op))
            self.reusable.add(op, run, state.params)
            return end_record(name, Status.SUCCEEDED, run.reason, found)
        if run.status == Status.FAILED and state.retries < op.settings.get("max_retries", 0):
            due = self.ledger.clock() + retry_delay_s(op.settings, state.retries)
            return {"what": What.RETRY, "op": name, "due": due, "why": run.reason}
        return end_record(name, Status(run.status), run.reason)

    def _is_early(self, pipeline: Run) -> bool:
        """Whether it has to wait for the time of `execute_at`."""
        at = self.factory.pipeline.execute_at
        if at is None or pipeline.status != Status.CREATED or self.ledger.clock() >= read_time(at).timestamp():
            return False
        if self.shown is None:
            self.shown = {"why": f"waits until {at} (`execute_at`)"}
            self.store.put_fact(self.id, "waiting", self.shown)
        return True

    def _check_time(self, pipeline: Run) -> None:
        """Record that its time is over."""
        limit_s, began = self.factory.timeout_s, pipeline.started_at
        if limit_s is None or began is None or self.state.timeout is not None:
            return
        since = self.state.resumed_at or began.timestamp()
        if self.ledger.clock() - since > limit_s:
            self._record({"what": What.TIMEOUT, "why": f"its time limit of {limit_s:g} s was reached"})

    # what follows ----------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Record what is to be done with ops whose upstream ops have ended."""
        while verdicts := self.state.verdicts(self.ledger.clock(), self._has_slot, MOST_STARTS):
            self._record(*map(self._decided, verdicts))
            if not any(isinstance(verdict, Ended) for verdict in verdicts) and not self.factory.is_reusing:
                break  # nothing else follows from a start

    def _decided(self, verdict: Start | Ended) -> dict[str, Any]:
        if isinstance(verdict, Ended):
            return end_record(verdict.op, verdict.status, verdict.why)
        try:
            return self._begun(*verdict)
        except (CallError, SpecErrors) as fault:
            return end_record(verdict.op, Status.FAILED, f"cannot start: {fault}")

    def _begun(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The record of a start; or, with `reuse`, of an earlier result. Raises CallError, SpecErrors."""
        state, op = self.state.states[name], self.factory.ops[name]
        earlier = self.reusable.find(op, values)
        if earlier is not None:
            found = outputs_of(self.home, self.store, earlier, declared_outputs(op))
            why = f"the result of run {earlier.id}, which had the same file, params, code and inputs"
            return end_record(name, Status.SUCCEEDED, why, found) | {"run": earlier.id}
        goes_on = not state.is_fresh and dict(state.params) == dict(values)
        number = state.number if goes_on else state.number + 1
        history = self.home.run(op_id(self.id, name, number)).history()
        if goes_on and not history:  # its run was removed
            number += 1
        return {"what": What.START, "op": name, "number": number, "after": len(history), "params": dict(values)}

    def _has_slot(self, op: str) -> bool:
        """Whether an op may have another run, beside those in other pipelines of the same schedule."""
        if self.parent is None:
            return True
        others = [one for one in self.beside.values() if isinstance(one, ActivePipeline) and one.parent == self.parent]
        return has_slot(self.factory.ops[op], [other.state for other in others])

    def _start_all(self) -> None:
        """Start the recorded runs that are not started yet."""
        missing = [name for name in self.state.active if name not in self.started]
        for name in missing[:MOST_STARTS]:  # a pass must not take long
            try:
                if self._start(name):
                    self.started.add(name)
            except (CallError, SpecErrors) as fault:
                self._record(end_record(name, Status.FAILED, f"cannot start: {fault}"))

    def _start(self, name: str) -> bool:
        """Make the run of an op, or let it go on. False if its run has not ended yet."""
        state, run_id = self.state.states[name], self._run_id(name)
        asked = self.factory.asked(self.factory.ops[name], state.number, state.params)
        if not self.home.run(run_id).path.exists():
            self.factory.create(self.store, asked, state.number)
            return True
        run = self.row(run_id)
        if not run.is_done:
            return True
        self._go_on(run, asked)
        return True

    def _go_on(self, run: Run, asked: Submission) -> None:
        """Queue the next attempt of a run that had failed or was stopped; a group runs its failed trials again."""
        assert asked.prepared is not None
        self.home.keep_environment(run.id, asked.prepared.variables)
        if run.kind == GROUP:
            JournaledFolder(self.home.run(run.id).path).ask("rerun")
        queue_next_attempt(self.home, self.store, run, "its pipeline was resumed")

    def _stop_all(self, why: str) -> None:
        for name in list(self.state.active):
            if name in self.started:
                self.home.run(self._run_id(name)).ask_to_stop(why)
            else:
                self._record(end_record(name, Status.STOPPED, why))
        waiting = [name for name, state in self.state.states.items() if state.status == WAITING]
        self._record(*(end_record(name, Status.STOPPED, why) for name in waiting))

    # its own status --------------------------------------------------------------------------------------------------

    def _show(self, pipeline: Run) -> None:
        if pipeline.status != Status.RUNNING:
            limit = self.factory.pipeline.concurrency
            at_once = f", {limit} at a time" if limit is not None else ""
            self.ledger.change(pipeline, Status.RUNNING, f"{len(self.state.ops)} ops{at_once}")
            self.store.put_fact(self.id, "waiting", None)
        shown = {
            "ops": {name: count for name, count in self.state.counts.items() if count},
            "total": len(self.state.ops),
            "concurrency": self.factory.pipeline.concurrency,
        }
        if shown != self.shown:
            self.store.put_fact(self.id, PROGRESS, shown)
            self.shown = shown

    def _conclude(self, pipeline: Run, stop: str | None) -> None:
        pipeline = self.store.find(pipeline.id)
        self.is_over = True
        write_atomic(self.folder.path / run_paths.PROGRESS, json.dumps(self.shown).encode())  # to rebuild the store
        if stop is not None:
            self.ledger.finish(pipeline, Status.STOPPED, stop)
        elif self.state.timeout is not None:
            self.ledger.finish(pipeline, Status.FAILED, self.state.timeout)
        else:
            self.ledger.finish(pipeline, *self.state.outcome())


def end_record(op: str, status: Status, why: str, found: OpOutputs | None = None) -> dict[str, Any]:
    record: dict[str, Any] = {"what": What.END, "op": op, "status": status, "why": why}
    return record if found is None else record | {"outputs": found.values, "missing": found.missing}
