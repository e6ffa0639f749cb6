"""The state of a pipeline, folded from its journal, and what is decided from it. Pure: times come in as arguments."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from phalanx.home.journal import Record
from phalanx.spec.model import Operation, Variable, thaw
from phalanx.spec.templates import TemplateError, expression_names, is_true
from phalanx.store.statuses import DONE, Status
from phalanx.submission.ops.factory import op_id

WAITING = "waiting"  # the status of an op that is not decided yet
ACTIVE = "active"  # of one that has a run which has not ended; people see the status of the run
FAILURES = frozenset([Status.FAILED, Status.UPSTREAM_FAILED])


class What(StrEnum):
    """What a record of the journal says."""

    START = "start"  # a run of an op is to be started; after a resume, the same run goes on
    END = "end"  # an op has ended, or never will run
    RETRY = "retry"  # a run of an op has failed, and there will be another one
    AGAIN = "again"  # the pipeline was resumed: these ops are decided again
    TIMEOUT = "timeout"  # the time of the pipeline is over


@dataclass(slots=True)
class OpState:
    status: str = WAITING
    number: int = -1  # of its last run
    after: int = 0  # that run is started once it has more statuses than this
    params: Mapping[str, Any] = field(default_factory=dict)  # of its last run: those that are outputs of other ops
    retries: int = 0  # since it was submitted or resumed
    due: float = 0.0  # when the next retry may start
    is_fresh: bool = True  # its next run is a new one
    why: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # declared outputs without a value, and why
    reused: str | None = None  # the earlier run whose result it has
    ended_at: float | None = None
    seq: int = 0  # of its last record

    @property
    def is_done(self) -> bool:
        return self.status in DONE


class Start(NamedTuple):
    """An op is to run now, with these values of the params that are outputs of other ops."""

    op: str
    values: Mapping[str, Any]


class Ended(NamedTuple):
    """An op is not to run."""

    op: str
    status: Status
    why: str


Verdict = Start | Ended | None  # None: it has to wait


def has_slot(op: Operation, states: Iterable[PipelineState]) -> bool:
    """Whether an op may have another run. `states`: of the unfinished pipelines of its schedule."""
    most = op.settings.get("concurrency")
    return most is None or sum(op.name in state.active for state in states) < int(most)


class PipelineState:
    def __init__(
        self, pipeline_id: str, ops: Mapping[str, Operation], concurrency: int | None, records: Iterable[Record] = ()
    ) -> None:
        self.id, self.ops, self.concurrency = pipeline_id, ops, concurrency
        self.states = {name: OpState() for name in ops}
        self.followers: dict[str, list[str]] = {name: [] for name in ops}
        for name, op in ops.items():
            for other in op.awaited:
                self.followers[other].append(name)
        self.seq = 0
        self.counts: Counter[str] = Counter({WAITING: len(ops)})
        self.active: dict[str, None] = {}  # in the order of their starts
        self.open: deque[str] = deque(ops)  # to be looked at: nothing has changed for the others
        self.is_open: set[str] = set(ops)
        self.ready: dict[str, None] = {}  # that wait only for room
        self.retrying: set[str] = set()
        self.taken: set[str] = set()  # requests in the journal
        self.timeout: str | None = None
        self.resumed_at: float | None = None  # the time limit counts from then
        for record in records:
            self.fold(record)

    # what the journal says -------------------------------------------------------------------------------------------

    def fold(self, record: Record) -> None:
        self.seq = record["seq"]
        if "request" in record:
            self.taken.add(record["request"])
        match record["what"]:
            case What.START:
                self._start(record)
            case What.END:
                self._end(record)
            case What.RETRY:
                state = self.states[record["op"]]
                state.retries, state.due, state.is_fresh = state.retries + 1, record["due"], True
                self._set(record, WAITING)
                self.retrying.add(record["op"])
            case What.AGAIN:
                self.timeout, self.resumed_at = None, record["at"]
                for name in record["ops"]:
                    state = self.states[name]
                    state.retries, state.due, state.is_fresh = 0, 0.0, state.number < 0
                    state.outputs, state.missing, state.reused = {}, {}, None
                    self._set({**record, "op": name}, WAITING)
            case What.TIMEOUT:
                self.timeout = record["why"]

    def _start(self, record: Record) -> None:
        state = self.states[record["op"]]
        state.number, state.after, state.params = record["number"], record["after"], record["params"]
        state.is_fresh = False
        self._set(record, ACTIVE)

    def _end(self, record: Record) -> None:
        state = self.states[record["op"]]
        state.outputs, state.missing = record.get("outputs", {}), record.get("missing", {})
        state.reused = record.get("run")
        self._set(record, Status(record["status"]))

    def _set(self, record: Record, status: str) -> None:
        name = record["op"]
        state = self.states[name]
        self.counts[state.status] -= 1
        self.counts[status] += 1
        state.status, state.why, state.seq = status, record.get("why", ""), record["seq"]
        state.ended_at = record["at"] if state.is_done else None
        self.retrying.discard(name)
        self.active.pop(name, None)
        if status == ACTIVE:
            self.active[name] = None
        for changed in [name] if status == WAITING else self.followers[name] if state.is_done else ():
            self._reopen(changed)

    def _reopen(self, name: str) -> None:
        if self.states[name].status == WAITING and name not in self.is_open:
            self.open.append(name)
            self.is_open.add(name)

    @property
    def is_over(self) -> bool:
        return not self.active and not self.counts[WAITING]

    def run_id(self, name: str) -> str | None:
        """The newest run of an op, or the one whose result it has."""
        state = self.states[name]
        return state.reused or (op_id(self.id, name, state.number) if state.number >= 0 else None)

    # what follows from it --------------------------------------------------------------------------------------------

    def verdicts(self, now: float, has_slot: Callable[[str], bool], most: int) -> list[Start | Ended]:
        """What is to be done now: all have to be recorded and folded before the next call. `has_slot`: whether there
        may be another run of an op. `most`: starts."""
        for name in [name for name in self.retrying if self.states[name].due <= now]:
            self._reopen(name)
        found: list[Start | Ended] = []
        while self.open:
            name = self.open.popleft()
            self.is_open.discard(name)
            verdict = self.verdict(name) if self.states[name].status == WAITING else None
            if isinstance(verdict, Start) and self.states[name].due <= now:
                self.ready[name] = None
            elif isinstance(verdict, Ended):
                found.append(verdict)
        room = most if self.concurrency is None else min(most, self.concurrency - len(self.active))
        for name in list(self.ready) if room > 0 else ():
            if self.states[name].status != WAITING:
                del self.ready[name]
            elif has_slot(name):
                del self.ready[name]
                verdict = self.verdict(name)
                assert isinstance(verdict, Start), "its upstream ops have ended"
                found.append(verdict)
                room -= 1
            if room <= 0:
                break
        return found

    @property
    def _has_room(self) -> bool:
        return self.concurrency is None or len(self.active) < self.concurrency

    def verdict(self, name: str) -> Verdict:
        """What is to be done with an op, if there is room for it."""
        op = self.ops[name]
        upstream = {other: self.states[other].status for other in op.upstream}
        skipped = [other for other, status in upstream.items() if status == Status.SKIPPED]
        if skipped and op.settings.get("skip_on_upstream_skip"):
            return Ended(name, Status.SKIPPED, f"op `{skipped[0]}` was skipped")
        is_met = holds(op.trigger, upstream.values())
        if is_met is False:
            return Ended(name, Status.UPSTREAM_FAILED, unmet(op.trigger, upstream))
        if is_met is None or not all(self.states[one["op"]].is_done for one in op.conditions):
            return None
        if not all(self.states[reference.op].is_done for reference in op.references):
            return None
        try:
            unfulfilled = next(filter(None, map(self._unfulfilled, op.conditions)), None)
            if unfulfilled is not None:
                return Ended(name, Status.SKIPPED, unfulfilled)
            values = {one.param: self._output(one.op, one.output) for one in op.references}
        except OutputMissing as fault:
            return Ended(name, Status.FAILED, str(fault))
        return Start(name, values) if op.when is None else _decided(op, op.when, values)

    def _unfulfilled(self, condition: Mapping[str, Any]) -> str | None:
        """Why a condition does not hold; None if it does. Raises OutputMissing."""
        other = condition["op"]
        if condition["kind"] == "status":
            trigger, status = condition.get("trigger", "all_succeeded"), self.states[other].status
            why = f"its condition is `{trigger}` on op `{other}`, which {_ENDED[status]}"
            return None if holds(trigger, [status]) else why
        is_equal = condition.get("exp", "eq") == "eq"
        for name, wanted in condition["params"].items():
            found = self._output(other, name)
            if (found == thaw(wanted)) is not is_equal:
                sign = "=" if is_equal else "≠"
                return f"its condition is `{name} {sign} {thaw(wanted)}` of op `{other}`, whose `{name}` is {found}"
        return None

    def _output(self, name: str, output: str) -> Any:
        """Raises OutputMissing."""
        state = self.states[name]
        if output in state.outputs:
            return state.outputs[output]
        if state.status != Status.SUCCEEDED:
            raise OutputMissing(f"needs the output `{output}` of op `{name}`, which {_ENDED[state.status]}")
        why = state.missing.get(output, "it is not declared")
        raise OutputMissing(f"needs the output `{output}` of op `{name}` (run {self.run_id(name)}): {why}")

    def waits_for(self, name: str, now: float, *, is_slotless: bool = False) -> str:
        """Why an op that is not decided yet waits."""
        op, state = self.ops[name], self.states[name]
        if state.due > now:
            most = op.settings.get("max_retries", 0)
            return f"retry {state.retries} of {most} in {math.ceil(state.due - now)} s: {state.why}"
        waiting = [other for other in op.awaited if not self.states[other].is_done]
        if waiting:
            verb = _VERBS[op.trigger] if set(waiting) <= set(op.upstream) else "end"
            shown = ", ".join(f"op `{other}`" for other in waiting[:5]) + (" …" if len(waiting) > 5 else "")
            return f"waits for {shown} to {verb}"
        if is_slotless:
            return f"waits for another run of it to end: its `concurrency` is {op.settings['concurrency']}"
        if not self._has_room:
            return f"waits until another op has ended: `concurrency` is {self.concurrency}"
        return "starts next"

    def to_resume(self) -> list[str]:
        """The ops that run again when the pipeline is resumed: all that did not succeed, except those that were skipped
        for a reason that still holds."""
        found: dict[str, None] = {}
        for name in self._in_order():
            state, op = self.states[name], self.ops[name]
            is_behind = any(other in found for other in op.awaited)
            if state.is_done and state.status != Status.SUCCEEDED and (state.status != Status.SKIPPED or is_behind):
                found[name] = None
        return list(found)

    def _in_order(self) -> Iterator[str]:
        return iter(TopologicalSorter({name: op.awaited for name, op in self.ops.items()}).static_order())

    def outcome(self) -> tuple[Status, str]:
        """How the pipeline ended: it failed if an op did."""
        for status in (Status.FAILED, Status.STOPPED):
            found = [name for name, state in self.states.items() if state.status == status]
            if found:
                more = f" and {len(found) - 1} more" if len(found) > 1 else ""
                return status, f"op `{found[0]}`{more} {_ENDED[status]}: {self.states[found[0]].why}"
        counts = [f"{count} {name}" for name, count in sorted(self.counts.items()) if count]
        return Status.SUCCEEDED, f"all ops have ended: {', '.join(counts)}" if counts else "it has no ops"


class OutputMissing(Exception):
    """An op needs an output that another op does not have. The message says which and why."""


_ENDED = {
    WAITING: "has not ended",
    ACTIVE: "has not ended",
    Status.SUCCEEDED: "succeeded",
    Status.FAILED: "failed",
    Status.STOPPED: "was stopped",
    Status.SKIPPED: "was skipped",
    Status.UPSTREAM_FAILED: "did not run",
}
_VERBS = {
    "all_succeeded": "succeed",
    "all_failed": "fail",
    "all_done": "end",
    "one_succeeded": "succeed (one of them)",
    "one_failed": "fail (one of them)",
    "one_done": "end (one of them)",
}


def holds(trigger: str, statuses: Iterable[str]) -> bool | None:
    """Whether a trigger is met by the statuses of upstream ops; False if it never will be, None while that is open. An
    op without upstream ops runs."""
    found = list(statuses)
    some, _, wanted = trigger.partition("_")
    fitting: Iterable[str] = {"succeeded": (Status.SUCCEEDED,), "done": DONE}.get(wanted, (Status.FAILED,))
    if trigger == "all_failed":
        fitting = FAILURES
    fits = [status in fitting for status in found]
    if not found or (any(fits) if some == "one" else all(fits)):
        return True
    return False if all(status in DONE for status in found) else None


def unmet(trigger: str, upstream: Mapping[str, str]) -> str:
    ends = ", ".join(f"op `{name}` {_ENDED[status]}" for name, status in list(upstream.items())[:5])
    return f"its trigger is `{trigger}`: {ends}" + (" …" if len(upstream) > 5 else "")


def retry_delay_s(settings: Mapping[str, Any], retries: int) -> float:
    """Seconds before the next retry, after so many."""
    delay = float(settings.get("retry_delay", 0.0))
    if settings.get("retry_exp_backoff"):
        delay = max(2.0 ** min(retries, 30), delay)
        delay = min(delay, float(settings.get("max_retry_delay", math.inf)))
    return delay


def declared_outputs(op: Operation) -> tuple[Variable, ...]:
    return op.spec.outputs if op.spec is not None else ()


def _decided(op: Operation, when: str, values: Mapping[str, Any]) -> Verdict:
    """Whether an op starts whose `when` is about its params. One that cannot be evaluated never starts."""
    assert op.spec is not None, "its template is in the file"
    context = {**thaw(op.spec.params), **values}
    try:
        if is_true(when, context):
            return Start(op.name, values)
    except TemplateError as fault:
        return Ended(op.name, Status.FAILED, f"its condition `{when[:100]}` cannot be decided: {fault}")
    known = ", ".join(f"{name} = {context[name]}" for name in sorted(expression_names(when)) if name in context)
    return Ended(op.name, Status.SKIPPED, f"its condition is `{when[:100]}`, with {known[:200]}")
