"""The history of a search: events and actions folded in the order of the journal, with what decisions look up.

Recording costs the same for the first and the ten-thousandth trial, and decisions need no pass over all trials.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

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

RUNNING, REPORTED, FAILED, INVALID, STOPPED = "running", "reported", "failed", "invalid", "stopped"


class SearchTrial:
    """One trial as the search sees it. `values`: the reported value of each rung (None: the metric is missing)."""

    __slots__ = (
        "added",
        "bracket",
        "cause",
        "number",
        "params",
        "resource",
        "rung",
        "source",
        "state",
        "stop",
        "values",
    )

    def __init__(self, made: Create) -> None:
        self.number = made.trial
        self.params: dict[str, Any] = dict(made.params)
        self.bracket = made.bracket
        self.rung = made.rung
        self.resource = made.resource
        self.added = made.added
        self.source = made.source
        self.state = RUNNING
        self.values: dict[int, float | None] = {}
        self.cause = ""  # why it failed, is invalid or was stopped
        self.stop = False  # a `Stop` is recorded; `Stopped` is to follow

    @property
    def value(self) -> float | None:
        """The value of the highest rung that it reported."""
        return self.values[max(self.values)] if self.values else None

    def __repr__(self) -> str:
        return f"SearchTrial({self.number}, {self.state}, rung {self.rung}, {self.values}, {self.params})"


class History:
    """What is recorded so far. A repeated report of the same end is ignored: each rank may report."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.trials: list[SearchTrial] = []
        self.running: dict[int, SearchTrial] = {}
        self.counts: dict[str, int] = dict.fromkeys((RUNNING, REPORTED, FAILED, INVALID, STOPPED), 0)
        self.members: dict[tuple[int, int], list[SearchTrial]] = {}  # all that ever ran at a bracket's rung, in order
        self.points: set[str] = set()  # of all trials
        self.open_points: deque[Mapping[str, Any]] = deque()  # added by a user, not yet created
        self.n_added = 0  # trials that answer an `Added`
        self.n_added_invalid = 0
        self.n: int | None = None  # of the last `Changed`
        self.finish: Finish | None = None
        self.measured: dict[str, dict[int, list[tuple[int, float]]]] = {}  # metric -> trial -> its steps in order
        self.extremes: dict[str, tuple[float, int, float, int]] = {}  # metric -> lowest, its trial, highest, its trial
        self.length = 0  # entries recorded
        for entry in entries:
            self.record(entry)

    def record(self, entry: Entry) -> None:
        self.length += 1
        _FOLD[type(entry)](self, entry)

    def _create(self, made: Create) -> None:
        if made.trial < len(self.trials):
            return  # already carried out
        if made.trial > len(self.trials):
            raise ValueError(f"trial {made.trial} is recorded before trial {len(self.trials)}")
        trial = SearchTrial(made)
        self.trials.append(trial)
        self.points.add(point_key(trial.params))
        if made.added:
            self.n_added += 1
            if self.open_points:
                self.open_points.popleft()
        self._start(trial)

    def _promote(self, made: Promote) -> None:
        trial = self.trials[made.trial]
        if trial.state != REPORTED or made.rung != trial.rung + 1:
            return
        self.counts[REPORTED] -= 1
        trial.rung, trial.resource = made.rung, made.resource
        if made.params:
            trial.params.update(made.params)
        if made.source is not None:
            trial.source = made.source
        self._start(trial)

    def _start(self, trial: SearchTrial) -> None:
        trial.state = RUNNING
        self.counts[RUNNING] += 1
        self.running[trial.number] = trial
        self.members.setdefault((trial.bracket, trial.rung), []).append(trial)

    def _end(self, number: int, rung: int | None, state: str) -> SearchTrial | None:
        trial = self.running.get(number)
        if trial is None or (rung is not None and rung != trial.rung):
            return None
        del self.running[number]
        self.counts[RUNNING] -= 1
        self.counts[state] += 1
        trial.state = state
        return trial

    def _reported(self, event: Reported) -> None:
        trial = self._end(event.trial, event.rung, STOPPED if self._is_stopped(event.trial) else REPORTED)
        if trial is not None:
            trial.values[trial.rung] = event.value

    def _is_stopped(self, number: int) -> bool:
        """A trial that ends well after its `Stop` was recorded stays stopped: the decision stands."""
        return number in self.running and self.running[number].stop

    def _failed(self, event: Failed) -> None:
        trial = self._end(event.trial, event.rung, FAILED)
        if trial is not None:
            trial.cause = event.cause

    def _invalid(self, event: Invalid) -> None:
        trial = self._end(event.trial, None, INVALID)
        if trial is not None:
            trial.cause = event.why
            self.n_added_invalid += trial.added

    def _stopped(self, event: Stopped) -> None:
        trial = self._end(event.trial, event.rung, STOPPED)
        if trial is not None and event.value is not None:
            trial.values[trial.rung] = event.value

    def _measured(self, event: Measured) -> None:
        curve = self.measured.setdefault(event.metric, {}).setdefault(event.trial, [])
        if curve and event.step <= curve[-1][0]:
            return  # logged again after a restart
        curve.append((event.step, event.value))
        if math.isnan(event.value):
            return
        low, lowest, high, highest = self.extremes.get(event.metric, (math.inf, -1, -math.inf, -1))
        if event.value < low:
            low, lowest = event.value, event.trial
        if event.value > high:
            high, highest = event.value, event.trial
        self.extremes[event.metric] = (low, lowest, high, highest)

    def _stop(self, made: Stop) -> None:
        trial = self.running.get(made.trial)
        if trial is not None:
            trial.stop = True
            trial.cause = made.why

    def _rerun(self, event: Rerun) -> None:
        trial = self.trials[event.trial]
        if trial.state in (FAILED, STOPPED):
            self.counts[trial.state] -= 1
            self.counts[RUNNING] += 1
            self.running[trial.number] = trial
            trial.state, trial.stop, trial.cause = RUNNING, False, ""
            self.finish = None

    def _added(self, event: Added) -> None:
        self.open_points.append(event.params)
        self.finish = None

    def _changed(self, event: Changed) -> None:
        self.n = event.n
        self.finish = None

    def _finish(self, made: Finish) -> None:
        self.finish = made

    @property
    def n_counted(self) -> int:
        """Trials that count towards `n`: all but invalid ones and those that a user added."""
        return len(self.trials) - self.counts[INVALID] - self.n_added + self.n_added_invalid


_FOLD: dict[type, Any] = {
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


def point_key(params: Mapping[str, Any]) -> str:
    """A text that two equal points share, whatever the order of their names."""
    return json.dumps(dict(params), sort_keys=True, default=str)
