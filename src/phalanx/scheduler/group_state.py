"""The state of a group, folded from its journal: the history of its search, and which runs are to be started."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx.home.group_folder import GroupFolder, Record, trial_id
from phalanx.home.home import Home
from phalanx.scheduler.search_budget import SearchUsage
from phalanx.store import Run
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

    def fold(self, record: Record) -> None:
        """Take in one record."""
        self.seq = record["seq"]
        self.used += SearchUsage(*record.get("used", ()))
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


def is_search_entry(record: Record) -> bool:
    """Whether a record is a part of the search's history."""
    return record["what"] not in _OURS


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


def trial_rows(group_id: str, state: GroupState) -> list[dict[str, Any]]:
    """Each trial, in the order of their numbers."""
    return [
        {
            "trial": trial.number,
            "run": trial_id(group_id, trial.number),
            "state": trial.state,
            "bracket": trial.bracket,
            "rung": trial.rung,
            "resource": trial.resource,
            "value": trial.value,
            "params": dict(trial.params),
            "why": trial.cause,
        }
        for trial in state.history.trials
    ]


def ranked(rows: Iterable[Mapping[str, Any]], metric: Metric) -> list[Mapping[str, Any]]:
    """The trials that have a value, best first; the older one if they are equal."""
    found = [row for row in rows if row["value"] is not None and not math.isnan(row["value"])]
    return sorted(found, key=lambda row: (-row["value"] if metric.maximize else row["value"], row["trial"]))
