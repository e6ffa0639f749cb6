"""The state of a group, folded from its journal: the history of its search, and which runs are to be started."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx.home.group_folder import Record
from phalanx.tune.history import History, SearchTrial
from phalanx.tune.model import (
    Create,
    Event,
    Failed,
    Invalid,
    Metric,
    Promote,
    Reported,
    Rerun,
    SearchAction,
    Stopped,
    entry_as_json,
    entry_from_json,
)

PAUSED, CONTINUED, CONCURRENCY, RETRIED = "paused", "continued", "concurrency", "retried"  # records of ours
RECENT = 32
_OURS = (PAUSED, CONTINUED, CONCURRENCY, RETRIED)


class Leg(NamedTuple):
    """One attempt that a trial is to make. It is carried out once its run has more than `after` statuses."""

    trial: int
    rung: int
    after: int = 0
    resume: bool = True
    source: int | None = None
    why: str = ""


class Best(NamedTuple):
    trial: int
    value: float


class GroupState:
    """`concurrency`: of the file, until a record changes it."""

    def __init__(self, metric: Metric | None, concurrency: int, records: Iterable[Record] = ()) -> None:
        self.history = History()
        self.metric = metric
        self.concurrency = concurrency
        self.seq = 0
        self.legs: dict[int, Leg] = {}  # of the trials that are to run, or run
        self.paused: str | None = None  # why
        self.has_warned = False  # it was paused once because its first trials failed
        self.taken: set[str] = set()  # requests in the journal
        self.retries: Counter[tuple[int, int]] = Counter()  # by trial and rung
        self.best: Best | None = None
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)  # the last ends of trials
        for record in records:
            self.fold(record)

    @property
    def running(self) -> Mapping[int, SearchTrial]:
        return self.history.running

    @property
    def free_slots(self) -> int:
        return max(0, self.concurrency - len(self.history.running))

    def fold(self, record: Record) -> None:
        """Take in one record."""
        self.seq = record["seq"]
        if "request" in record:
            self.taken.add(record["request"])
        if record["what"] in _OURS:
            self._fold_ours(record)
            return
        entry = entry_from_json(record)
        self.history.record(entry)
        after = int(record.get("after", 0))
        match entry:
            case Create():
                self.legs[entry.trial] = Leg(entry.trial, entry.rung, after, source=entry.source, why=entry.why)
            case Promote():
                self.legs[entry.trial] = Leg(entry.trial, entry.rung, after, entry.resume, entry.source, entry.why)
            case Rerun():
                self.legs[entry.trial] = Leg(entry.trial, self.history.trials[entry.trial].rung, after, why=entry.why)
            case Reported() | Stopped():
                self._end(record)
                self._rank(entry.trial, entry.value)
            case Failed() | Invalid():
                self._end(record)
            case _:
                pass

    def _end(self, record: Record) -> None:
        leg = self.legs.pop(record["trial"], None)
        if leg is not None:
            shown = {name: record.get(name) for name in ("seq", "what", "trial", "value")}
            trial = self.history.trials[leg.trial]
            self.recent.append({**shown, "rung": leg.rung, "why": trial.cause, "params": dict(trial.params)})

    def _fold_ours(self, record: Record) -> None:
        match record["what"]:
            case "paused":
                self.paused = record["why"]
                self.has_warned |= bool(record.get("trials"))
            case "continued":
                self.paused = None
            case "concurrency":
                self.concurrency = int(record["n"])
            case "retried":
                trial, rung = record["trial"], record["rung"]
                self.retries[trial, rung] += 1
                self.legs[trial] = Leg(trial, rung, record["after"], why=record["why"])

    def _rank(self, trial: int, value: float | None) -> None:
        if value is None or value != value or self.metric is None:  # noqa: PLR0124 - NaN
            return
        if self.best is None or (value > self.best.value if self.metric.maximize else value < self.best.value):
            self.best = Best(trial, value)

    def decision(self, action: SearchAction, after: int = 0) -> dict[str, Any]:
        """The record of an action. `after`: how many statuses the trial's run has now."""
        found = {**entry_as_json(action), "seen_up_to": self.seq}
        return {**found, "after": after} if after else found


def event_record(event: Event | Rerun, **more: Any) -> dict[str, Any]:
    return {**entry_as_json(event), **more}
