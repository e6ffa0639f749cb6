"""The state of a group, folded from its journal: the history of its search, and which runs are to be started."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from phalanx.home.group_folder import GroupFolder, trial_id
from phalanx.home.home import Home
from phalanx.home.journal import Record
from phalanx.scheduler.search.budget import SearchUsage
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
from phalanx.tune.space import EMPTY

# records of ours, beside those of the search
PAUSED, CONTINUED, CONCURRENCY, RETRIED, EARLIER = "paused", "continued", "concurrency", "retried", "earlier"
REPEATED = "repeated"  # one of the repeats of a trial has ended
RECENT = 32
_OURS = (PAUSED, CONTINUED, CONCURRENCY, RETRIED, EARLIER, REPEATED)
LegKey = tuple[int, int]  # trial and repeat


class Leg(NamedTuple):
    """One attempt that a run of a trial is to make. It is carried out once the run has more than `after` statuses."""

    trial: int
    rung: int
    after: int = 0
    resume: bool = True
    source: int | None = None
    why: str = ""
    repeat: int = 0  # which of the runs of the trial

    @property
    def key(self) -> LegKey:
        return self.trial, self.repeat


class Best(NamedTuple):
    trial: int
    value: float
    samples: Sequence[float] = ()  # that the value is the mean of


class GroupState:
    """`concurrency`: of the file, until a record changes it. `repeats`: runs of each trial. `ahead`: how many runs are
    made before they can run; 0 for none."""

    def __init__(
        self, metric: Metric | None, concurrency: int, records: Iterable[Record] = (), repeats: int = 1, ahead: int = 0
    ) -> None:
        self.history = History()
        self.metric = metric
        self.concurrency = concurrency
        self.repeats = repeats
        self.ahead = ahead
        self.seq = 0
        self.legs: dict[LegKey, Leg] = {}  # that are to run, or run
        self.ends: dict[int, dict[int, Any]] = {}  # by trial and repeat: those of its last rung
        self.samples: dict[int, list[float]] = {}  # by trial: the values that its own is the mean of
        self.paused: str | None = None  # why
        self.has_warned = False  # it was paused once because its first trials failed
        self.taken: set[str] = set()  # requests in the journal
        self.retries: Counter[tuple[LegKey, int]] = Counter()  # by leg and rung
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
    def most_legs(self) -> int:
        """How many legs there may be."""
        return max(self.concurrency, self.ahead)

    @property
    def free_slots(self) -> int:
        """How many trials may start: the last of them need not have slots for all its repeats. Trials ahead are made
        many at a time."""
        has_many = self.ahead and len(self.legs) > self.most_legs // 2
        most = self.concurrency if has_many else self.most_legs
        return -(-max(0, most - len(self.legs)) // self.repeats)

    def runs_of(self, group_id: str, number: int) -> list[str]:
        """The runs of a trial: its own, or the earlier one that it was taken from."""
        return [self.runs[number]] if number in self.runs else self.own_runs(group_id, number)

    def own_runs(self, group_id: str, number: int) -> list[str]:
        """The runs that this group makes for a trial."""
        return [trial_id(group_id, number, repeat) for repeat in range(self.repeats)]

    def reusable(self, action: SearchAction) -> Mapping[str, Any] | None:
        """The trial of an earlier group with the same params and code."""
        if not isinstance(action, Create) or action.added:
            return None
        found = self.earlier.get(_key(action.params))
        is_same = found is not None and found["same_code"] and found.get("repeats", 1) >= self.repeats
        return found if is_same else None

    def legs_of(self, number: int) -> list[Leg]:
        """The open legs of a trial."""
        return [leg for repeat in range(self.repeats) if (leg := self.legs.get((number, repeat))) is not None]

    def end_record(self, leg: Leg, event: Event, **more: Any) -> dict[str, Any]:
        """The record of the end of a leg: of its trial, or of one of the repeats of it."""
        end = event_record(event, **more)
        if self.repeats == 1:
            return end
        return {"what": REPEATED, "trial": leg.trial, "rung": leg.rung, "repeat": leg.repeat, "end": end}

    def repeated(self) -> Iterator[Event]:
        """The end of each trial whose repeats have all ended."""
        for number in self.history.running if self.repeats > 1 else ():
            if not self.legs_of(number):
                yield combined(list(self.ends[number].values()))

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
        after = record.get("after", 0)
        match entry:
            case Create():
                self._begin(Leg(entry.trial, entry.rung, source=entry.source, why=entry.why), after)
            case Promote():
                self._begin(Leg(entry.trial, entry.rung, 0, entry.resume, entry.source, entry.why), after)
            case Rerun():
                ends = self.ends.get(entry.trial, {}).items()
                kept = {repeat: end for repeat, end in ends if isinstance(end, Reported)}
                self._begin(Leg(entry.trial, self.history.trials[entry.trial].rung, why=entry.why), after, kept)
            case Reported() | Stopped():
                self._end(record, entry.value)
                self._rank(entry.trial, entry.value)
            case Failed() | Invalid():
                self._end(record, None)
            case _:
                pass

    def _begin(self, leg: Leg, after: int | list[int], kept: Mapping[int, Any] = EMPTY) -> None:
        """All runs of a trial are to make an attempt, except repeats whose end is `kept`."""
        self.ends[leg.trial] = dict(kept)
        for repeat in range(self.repeats):
            if repeat not in kept:
                length = after[repeat] if isinstance(after, list) else after
                self.legs[leg.trial, repeat] = leg._replace(repeat=repeat, after=length)

    def _end(self, record: Record, value: float | None) -> None:
        number = record["trial"]
        for leg in self.legs_of(number):
            del self.legs[leg.key]
        trial = self.history.trials[number]
        if trial.ended == self.history.length:  # this entry ended it
            found = values_of(self.ends[number].values())
            if value is not None and found:
                self.samples[number] = found
            shown = {"seq": record["seq"], "what": trial.state, "trial": number, "value": value, "rung": trial.rung}
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
                again = Leg(record["trial"], record["rung"], record["after"], why=record["why"])
                again = again._replace(repeat=record.get("repeat", 0))
                self.retries[again.key, again.rung] += 1
                self.legs[again.key] = again
            case "repeated":
                trial, repeat = record["trial"], record["repeat"]
                self.legs.pop((trial, repeat), None)
                self.ends[trial][repeat] = entry_from_json(record["end"])

    def _rank(self, trial: int, value: float | None) -> None:
        if value is None or value != value or self.metric is None:  # noqa: PLR0124 - NaN
            return
        if self.best is None or (value > self.best.value if self.metric.maximize else value < self.best.value):
            self.best = Best(trial, value, self.samples.get(trial, ()))


def combined(ends: Sequence[Any]) -> Event:
    """The end of a trial, from those of its repeats: invalid if one was, stopped if one was, failed if all did. Its
    value is the mean of the values that there are."""
    for kind in (Invalid, Stopped, Reported):
        for end in ends:
            if isinstance(end, kind):
                return end if isinstance(end, Invalid) else end._replace(value=_mean(values_of(ends)))
    failed: Event = ends[0]
    return failed


def values_of(ends: Iterable[Any]) -> list[float]:
    return [end.value for end in ends if getattr(end, "value", None) is not None]


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


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


def decision_record(action: SearchAction, seen_up_to: int, after: int | list[int] = 0) -> dict[str, Any]:
    """The record of an action. `after`: how many statuses the trial's run has now; if it has several, each of them."""
    found = {**entry_as_json(action), "seen_up_to": seen_up_to}
    return {**found, "after": after} if after else found


def event_record(event: Event | Rerun, **more: Any) -> dict[str, Any]:
    return {**entry_as_json(event), **more}


def read_state(home: Home, group: Run, search: Mapping[str, Any]) -> GroupState:
    """The state of a group for those who only look. `search`: the fact of that name. Raises CallError."""
    metric = search.get("metric")
    records = GroupFolder(home.run(group.id).path).records()
    concurrency, repeats = int(search.get("concurrency", 1)), int(search.get("repeats", 1))
    return GroupState(Metric(**metric) if metric else None, concurrency, records, repeats)
