"""The history of a search: events and actions folded in the order of the journal, with what decisions look up.

Recording costs the same for the first and the ten-thousandth trial, and decisions need no pass over all trials.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from phalanx.tune.curves import Curves
from phalanx.tune.model import (
    Added,
    Changed,
    Create,
    Entry,
    Failed,
    Finish,
    Invalid,
    Measured,
    Promote,
    Reported,
    Rerun,
    Stop,
    Stopped,
)
from phalanx.tune.space import point_key

RUNNING, REPORTED, FAILED, INVALID, STOPPED = STATES = ("running", "reported", "failed", "invalid", "stopped")


class SearchTrial:
    """One trial as the search sees it. `values`: the reported value of each rung (None: the metric is missing).
    `cause`: why it failed, is invalid or was stopped. `is_stopping`: a `Stop` is recorded, its end is not. `ended`:
    number of the entry that ended its last attempt."""

    __slots__ = (
        *("number", "params", "bracket", "rung", "resource", "source", "added"),
        *("state", "values", "cause", "is_stopping", "ended"),
    )

    def __init__(self, made: Create) -> None:
        self.number = made.trial
        self.params: dict[str, Any] = dict(made.params)
        self.bracket = made.bracket
        self.rung = made.rung
        self.resource = made.resource
        self.source = made.source
        self.added = made.added
        self.state = RUNNING
        self.values: dict[int, float | None] = {}
        self.cause = ""
        self.is_stopping = False
        self.ended = -1

    @property
    def value(self) -> float | None:
        """The value of the highest rung that it reported."""
        return self.values[max(self.values)] if self.values else None

    def __repr__(self) -> str:
        return f"SearchTrial({self.number}, {self.state}, rung {self.rung}, {self.values}, {self.params})"


class Rung:
    """All trials that ran at one rung of one bracket. `counts`: how their attempts at this rung ended."""

    def __init__(self) -> None:
        self.members: list[SearchTrial] = []
        self.counts: dict[str, int] = dict.fromkeys(STATES, 0)
        self._results: list[tuple[float, int]] = []  # of those with a finite value, in the order of reports
        self._rankings: dict[bool, list[tuple[float, int]]] = {}

    def add_result(self, value: float, number: int) -> None:
        self._results.append((value, number))
        for maximize, ranking in self._rankings.items():
            insort(ranking, (-value if maximize else value, number))

    def ranking(self, maximize: bool) -> list[tuple[float, int]]:
        """Loss and number of each trial that has a value, best first; the older one if they are equal."""
        if maximize not in self._rankings:
            sign = -1 if maximize else 1
            self._rankings[maximize] = sorted((sign * value, number) for value, number in self._results)
        return self._rankings[maximize]

    @property
    def n_ranked(self) -> int:
        """Trials that take part in a ranking: also those that failed, which are its last."""
        return self.counts[REPORTED] + self.counts[FAILED] + self.counts[STOPPED]


class History:
    """What is recorded so far. A repeated report of the same end is ignored: each rank may report."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.trials: list[SearchTrial] = []
        self.running: dict[int, SearchTrial] = {}
        self.counts: dict[str, int] = dict.fromkeys(STATES, 0)  # of all trials
        self.own: dict[str, int] = dict.fromkeys(STATES, 0)  # of those that no user added
        self.rungs: dict[tuple[int, int], Rung] = {}  # by bracket and rung
        self.open_points: deque[Mapping[str, Any]] = deque()  # added by a user, not yet created
        self.n: int | None = None  # of the last `Changed`
        self.finish: Finish | None = None
        self.curves = Curves()
        self.length = 0  # entries recorded
        self.view: object = None  # what decisions keep from one to the next; follows from the settings alone
        self._points: dict[tuple[str, ...], set[str]] = {}
        self._undo: list[Callable[[], None]] | None = None
        for entry in entries:
            self.record(entry)

    def record(self, entry: Entry) -> None:
        """Fold the next entry of the journal."""
        self.length += 1
        _FOLD[type(entry)](self, entry)

    @contextmanager
    def draft(self) -> Iterator[None]:
        """Actions recorded inside are taken back at the end: to decide several that depend on each other."""
        self._undo = []
        length, finish = self.length, self.finish
        try:
            yield
        finally:
            for undo in reversed(self._undo):
                undo()
            self._undo = None
            self.length, self.finish = length, finish

    def rung(self, bracket: int, number: int) -> Rung:
        found = self.rungs.get((bracket, number))
        if found is None:
            found = self.rungs[bracket, number] = Rung()
        return found

    def points(self, names: tuple[str, ...]) -> set[str]:
        """The keys of all points so far, by the dimensions of these names."""
        if names not in self._points:
            self._points[names] = {point_key(trial.params, names) for trial in self.trials}
        return self._points[names]

    def _create(self, made: Create) -> None:
        if made.trial < len(self.trials):
            return  # recorded twice
        if made.trial > len(self.trials):
            raise ValueError(f"trial {made.trial} is recorded before trial {len(self.trials)}")
        trial = SearchTrial(made)
        self.trials.append(trial)
        new = [
            (keys, key) for names, keys in self._points.items() if (key := point_key(made.params, names)) not in keys
        ]
        for keys, key in new:
            keys.add(key)
        point = self.open_points.popleft() if made.added and self.open_points else None
        self._start(trial)
        if self._undo is not None:

            def undo() -> None:
                self._unstart(trial)
                self.trials.pop()
                for keys, key in new:
                    keys.discard(key)
                if point is not None:
                    self.open_points.appendleft(point)

            self._undo.append(undo)

    def _promote(self, made: Promote) -> None:
        trial = self.trials[made.trial]
        if trial.state != REPORTED or made.rung != trial.rung + 1:
            return  # recorded twice
        before = (trial.params, trial.rung, trial.resource, trial.source)
        self._count(trial, -1)
        trial.params = {**trial.params, **made.params}
        trial.rung, trial.resource, trial.source = made.rung, made.resource, made.source
        self._start(trial)
        if self._undo is not None:

            def undo() -> None:
                self._unstart(trial)
                trial.params, trial.rung, trial.resource, trial.source = before
                trial.state = REPORTED
                self._count(trial, 1)

            self._undo.append(undo)

    def _count(self, trial: SearchTrial, by: int) -> None:
        self.counts[trial.state] += by
        if not trial.added:
            self.own[trial.state] += by

    def _start(self, trial: SearchTrial) -> None:
        trial.state = RUNNING
        self._count(trial, 1)
        self.running[trial.number] = trial
        rung = self.rung(trial.bracket, trial.rung)
        rung.members.append(trial)
        rung.counts[RUNNING] += 1

    def _unstart(self, trial: SearchTrial) -> None:
        rung = self.rung(trial.bracket, trial.rung)
        rung.counts[RUNNING] -= 1
        rung.members.pop()
        del self.running[trial.number]
        self._count(trial, -1)

    def _end(self, number: int, rung: int | None, state: str, cause: str = "") -> SearchTrial | None:
        """The trial that this ends; None if it has no such attempt under way."""
        trial = self.running.get(number)
        if trial is None or (rung is not None and rung != trial.rung):
            return None
        if trial.is_stopping and state == REPORTED:
            state = STOPPED  # it ended well just before it was stopped: the decision stands
        del self.running[number]
        self._count(trial, -1)
        trial.state, trial.ended = state, self.length
        trial.cause = trial.cause or cause
        trial.is_stopping = False
        self._count(trial, 1)
        counts = self.rung(trial.bracket, trial.rung).counts
        counts[RUNNING] -= 1
        counts[state] += 1
        return trial

    def _reported(self, event: Reported) -> None:
        trial = self._end(event.trial, event.rung, REPORTED)
        if trial is None:
            return
        trial.values[trial.rung] = event.value
        if event.value is not None:
            self.curves.note(event.trial, event.value)
        if trial.state == REPORTED and event.value is not None and math.isfinite(event.value):
            self.rung(trial.bracket, trial.rung).add_result(event.value, trial.number)

    def _failed(self, event: Failed) -> None:
        self._end(event.trial, event.rung, FAILED, event.cause)

    def _invalid(self, event: Invalid) -> None:
        self._end(event.trial, None, INVALID, event.why)

    def _stopped(self, event: Stopped) -> None:
        trial = self._end(event.trial, event.rung, STOPPED)
        if trial is not None and event.value is not None:
            trial.values[trial.rung] = event.value
            self.curves.note(event.trial, event.value)

    def _measured(self, event: Measured) -> None:
        self.curves.add(event.metric, event.trial, event.step, event.value)

    def _stop(self, made: Stop) -> None:
        trial = self.running.get(made.trial)
        if trial is None or trial.is_stopping:
            return
        trial.is_stopping, trial.cause = True, made.why
        if self._undo is not None:

            def undo() -> None:
                trial.is_stopping, trial.cause = False, ""

            self._undo.append(undo)

    def _rerun(self, event: Rerun) -> None:
        trial = self.trials[event.trial]
        if trial.state not in (FAILED, STOPPED):
            return  # recorded twice
        self._count(trial, -1)
        counts = self.rung(trial.bracket, trial.rung).counts
        counts[trial.state] -= 1
        counts[RUNNING] += 1
        trial.state, trial.cause = RUNNING, ""
        self._count(trial, 1)
        self.running[trial.number] = trial
        self.finish = None

    def _added(self, event: Added) -> None:
        self.open_points.append(event.params)
        self.finish = None

    def _changed(self, event: Changed) -> None:
        self.n = event.n
        self.finish = None

    def _finish(self, made: Finish) -> None:
        self.finish = made


_FOLD: dict[type, Callable[[History, Any], None]] = {
    Create: History._create,
    Promote: History._promote,
    Stop: History._stop,
    Finish: History._finish,
    Reported: History._reported,
    Failed: History._failed,
    Invalid: History._invalid,
    Stopped: History._stopped,
    Measured: History._measured,
    Added: History._added,
    Changed: History._changed,
    Rerun: History._rerun,
}
