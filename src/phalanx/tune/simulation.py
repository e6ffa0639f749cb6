"""Whole searches without training: trials take their values and durations from functions or recorded curves.

`Simulation.run` plays a search in simulated time, in milliseconds, with so many slots. Tests and cost estimates use
it. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Union

from phalanx.tune.decision import decide
from phalanx.tune.history import History, SearchTrial
from phalanx.tune.model import (
    Create,
    Entry,
    Event,
    Failed,
    Finish,
    Invalid,
    Measured,
    Promote,
    Reported,
    SearchAction,
    SearchSettings,
    Stop,
    Stopped,
)


class Outcome(NamedTuple):
    """How an attempt ends: `value` None with `cause` is a failure, with `invalid` an infeasible point."""

    value: float | None
    cause: str = ""
    invalid: str = ""


# The value of a trial with its params at an amount of the resource (None: the algorithm has no resource)
Objective = Callable[[Mapping[str, Any], Optional[float]], Union[float, Outcome]]
Duration = Callable[[SearchTrial, float], float]  # seconds that so many units take
Decide = Callable[[SearchSettings, History, int], List[SearchAction]]


class Played(NamedTuple):
    """A search that has ended. `units`: of the resource, over all attempts (trials, if there is no resource). `time`:
    from the first start to the last end. `busy`: slot-seconds used. `ends`: time, units so far and value of each
    report."""

    history: History
    entries: list[Entry]
    units: float
    time: float
    busy: float
    ends: list[tuple[float, float, int, float | None]]
    finish: Finish | None

    def best(self, maximize: bool) -> float | None:
        values = [value for *_, value in self.ends if value is not None and not math.isnan(value)]
        return None if not values else max(values) if maximize else min(values)


class Simulation:
    """A search over an objective. `report_every`: units between two `Measured` of an attempt, if the settings watch a
    metric. `duration`: by default one unit takes one second."""

    def __init__(
        self,
        settings: SearchSettings,
        objective: Objective,
        concurrency: int = 1,
        *,
        duration: Duration | None = None,
        report_every: float = 1.0,
        decide: Decide = decide,
    ) -> None:
        self.settings = settings
        self.objective = objective
        self.concurrency = concurrency
        self.duration = duration or (lambda _trial, units: units)
        self.report_every = report_every
        self.decide = decide
        self.history = History()
        self.entries: list[Entry] = []
        self.reached: dict[int, float] = {}  # trial -> the resource it has been trained to
        self.units = 0.0
        self.busy = 0.0
        self.ends: list[tuple[float, float, int, float | None]] = []
        self._queue: list[tuple[float, int, Event]] = []
        self._order = 0
        self._started: dict[int, tuple[float, float, float]] = {}  # trial -> time, units, seconds of its attempt

    def run(self, most_units: float | None = None) -> Played:
        """Play to the end, or until so many units are used."""
        now = 0.0
        finish = self._decide(now)
        while finish is None and self._queue and (most_units is None or self.units < most_units):
            now, _, event = heapq.heappop(self._queue)
            if self._is_current(event):
                self._happen(event, now)
                finish = self._decide(now)
        for number in list(self._started):
            self._settle(number, now)  # still running when the search ends: used up to now
        return Played(self.history, self.entries, self.units, now, self.busy, self.ends, finish)

    def _record(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.history.record(entry)

    def _decide(self, now: float) -> Finish | None:
        for action in self.decide(self.settings, self.history, self.concurrency - len(self.history.running)):
            self._record(action)
            if isinstance(action, (Create, Promote)):
                self._start(action, now)
            elif isinstance(action, Stop):
                trial = self.history.trials[action.trial]
                self._settle(action.trial, now)
                self._push(now, Stopped(action.trial, trial.rung))
            else:
                return action
        return None

    def _start(self, action: Create | Promote, now: float) -> None:
        trial = self.history.trials[action.trial]
        amount = trial.resource
        if isinstance(action, Promote) and action.source is not None:
            self.reached[trial.number] = self.reached.get(action.source, 0.0)
        resumes = isinstance(action, Create) or action.resume
        before = self.reached.get(trial.number, 0.0) if resumes else 0.0
        units = 1.0 if amount is None else max(0.0, amount - before)
        seconds = self.duration(trial, units)
        self._started[trial.number] = (now, units, seconds)
        self.reached[trial.number] = amount or 0.0
        found = self.objective(trial.params, amount)
        outcome = found if isinstance(found, Outcome) else Outcome(found)
        for metric in self.settings.watched if amount is not None else ():
            reports = int(units / self.report_every)
            for report in range(1, reports + 1):
                done = report * self.report_every
                value = self.objective(trial.params, before + done)
                if isinstance(value, float):
                    self._push(now + seconds * done / units, Measured(trial.number, int(before + done), value, metric))
        event: Event
        if outcome.invalid:
            event = Invalid(trial.number, outcome.invalid)
        elif outcome.cause:
            event = Failed(trial.number, trial.rung, outcome.cause)
        else:
            event = Reported(trial.number, trial.rung, outcome.value)
        self._push(now + seconds, event)

    def _push(self, when: float, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, event))

    def _is_current(self, event: Event) -> bool:
        """Whether the attempt that an event belongs to still runs; one that was stopped says no more."""
        trial = self.history.running.get(getattr(event, "trial", -1))
        if trial is None:
            return False
        return trial.is_stopping == isinstance(event, Stopped) and getattr(event, "rung", trial.rung) == trial.rung

    def _happen(self, event: Event, now: float) -> None:
        self._record(event)
        if isinstance(event, Measured):
            return
        trial = getattr(event, "trial", -1)
        self._settle(trial, now)
        if isinstance(event, Reported):
            self.ends.append((now, self.units, trial, event.value))

    def _settle(self, number: int, now: float) -> None:
        """Count what an attempt has used so far."""
        if number not in self._started:
            return
        start, units, seconds = self._started.pop(number)
        share = 1.0 if seconds <= 0 else min(1.0, (now - start) / seconds)
        self.units += units * share
        self.busy += now - start
