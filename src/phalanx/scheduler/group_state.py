"""The state of a group, folded from its journal: the history of its search, and which runs are to be started."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx.home.group_folder import GroupFolder, Record
from phalanx.home.home import Home
from phalanx.scheduler.search_budget import SearchUsage
from phalanx.store import Run
from phalanx.tune.history import History, SearchTrial
from phalanx.tune.model import (
    OUTSIDE,
    Create,
    Entry,
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

# records of ours, beside those of the search
PAUSED, CONTINUED, CONCURRENCY, RETRIED, EARLIER = "paused", "continued", "concurrency", "retried", "earlier"
RECENT = 32
_OURS = (PAUSED, CONTINUED, CONCURRENCY, RETRIED, EARLIER)


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
        self.earlier: dict[str, Mapping[str, Any]] = {}  # trials of earlier groups, by their points
        self.runs: dict[int, str] = {}  # of trials that were taken from earlier runs
        self.used = SearchUsage()
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)  # the last ends of trials
        for record in records:
            self.fold(record)

    @property
    def running(self) -> Mapping[int, SearchTrial]:
        return self.history.running

    @property
    def free_slots(self) -> int:
        return max(0, self.concurrency - len(self.history.running))

    def run_of(self, number: int) -> str | None:
        """The earlier run that a trial was taken from; None for one of its own."""
        return self.runs.get(number)

    def reusable(self, action: SearchAction) -> Mapping[str, Any] | None:
        """The trial of an earlier group with the same params and code."""
        if not isinstance(action, Create) or action.added:
            return None
        found = self.earlier.get(_key(action.params))
        return found if found is not None and found["same_code"] else None

    def fold(self, record: Record) -> None:
        """Take in one record."""
        self.seq = record["seq"]
        self.used += SearchUsage(*record.get("used", ()))
        if "request" in record:
            self.taken.add(record["request"])
        if "run" in record:
            self.runs[record["trial"]] = record["run"]
        if record["what"] in _OURS:
            self._fold_ours(record)
            return
        for entry in entries_of(record):
            self.history.record(entry)
            self._follow(entry, record)

    def _follow(self, entry: Entry, record: Record) -> None:
        """Which attempts are to be made after an entry of the search."""
        after = int(record.get("after", 0))
        match entry:
            case Create():
                self.legs[entry.trial] = Leg(entry.trial, entry.rung, after, source=entry.source, why=entry.why)
            case Promote():
                self.legs[entry.trial] = Leg(entry.trial, entry.rung, after, entry.resume, entry.source, entry.why)
            case Rerun():
                self.legs[entry.trial] = Leg(entry.trial, self.history.trials[entry.trial].rung, after, why=entry.why)
            case Reported() | Stopped():
                self._end(record, entry.value)
                self._rank(entry.trial, entry.value)
            case Failed() | Invalid():
                self._end(record, None)
            case _:
                pass

    def _end(self, record: Record, value: float | None) -> None:
        leg = self.legs.pop(record["trial"], None)
        if leg is not None:
            trial = self.history.trials[leg.trial]
            shown = {"seq": record["seq"], "what": trial.state, "trial": leg.trial, "value": value, "rung": leg.rung}
            self.recent.append({**shown, "why": trial.cause, "params": dict(trial.params)})

    def _fold_ours(self, record: Record) -> None:
        match record["what"]:
            case "earlier":
                self.earlier = {_key(one["params"]): one for one in record["trials"]}
                for entry in entries_of(record):
                    self.history.record(entry)
                for one in record["trials"]:
                    self.runs[one["trial"]] = one["run"]
                    self._rank(one["trial"], one["value"])
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


def _key(params: Mapping[str, Any]) -> str:
    return json.dumps(sorted(params.items()), default=str)


def entries_of(record: Record) -> list[Entry]:
    """What a record adds to the history of the search."""
    if record["what"] == EARLIER:
        found: list[Entry] = []
        for one in record["trials"]:
            number = one["trial"]
            made = Create(number, one["params"], why=one["why"], bracket=OUTSIDE, added=True)
            found += [made, Reported(number, 0, one["value"])]
        return found
    if record["what"] in _OURS:
        return []
    entry = entry_from_json(record)
    return [entry, Reported(record["trial"], record["rung"], record["reused"])] if "reused" in record else [entry]


def decision_record(action: SearchAction, seen_up_to: int, after: int = 0) -> dict[str, Any]:
    """The record of an action. `after`: how many statuses the trial's run has now."""
    found = {**entry_as_json(action), "seen_up_to": seen_up_to}
    return {**found, "after": after} if after else found


def event_record(event: Event | Rerun, **more: Any) -> dict[str, Any]:
    return {**entry_as_json(event), **more}


def read_state(home: Home, group: Run, search: Mapping[str, Any]) -> GroupState:
    """The state of a group for those who only look. `search`: the fact of that name. Raises CallError."""
    metric = search.get("metric")
    records = GroupFolder(home.run(group.id).path).records()
    return GroupState(Metric(**metric) if metric else None, int(search.get("concurrency", 1)), records)
