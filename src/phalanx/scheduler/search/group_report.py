"""What a group has done so far, for those who look at it: the command line, the server and Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx.errors import CallError
from phalanx.home.group_folder import GroupFolder
from phalanx.home.home import Home
from phalanx.home.journal import Record, RunJournal
from phalanx.insight.trial_metric import interval_of
from phalanx.scheduler.group_state import GroupState, Leg, LegKey
from phalanx.spec.groups import search_settings
from phalanx.spec.model import thaw
from phalanx.store import DONE, Run, StatusChange, Store
from phalanx.store.records import STARTED
from phalanx.store.rows import run_row
from phalanx.submission.clone import spec_of
from phalanx.submission.group_requests import require_group
from phalanx.tune.history import REPORTED, RUNNING, SearchTrial
from phalanx.tune.importance import importance
from phalanx.tune.model import OUTSIDE, Metric, SearchSettings

Row = dict[str, Any]
ABOUT = ("id", "name", "project", "status", "reason", "created_at", "started_at", "finished_at")
_OF_FILE = ("concurrency", "repeats", "budget", "warm_start", "reuse")
QUEUED = ("created", "resuming")  # statuses with the number of the attempt before


class TrialStart(NamedTuple):
    """One start of a trial that was decided, with the resource of its rung."""

    leg: Leg
    resource: float | None


class GroupReport:
    """The trials of a group, folded from its journal. `update` reads what is new. Raises CallError for a run that is no
    group."""

    def __init__(self, home: Home, store: Store, group: Run) -> None:
        require_group(group)
        self.home, self.group = home, group
        self.search: Mapping[str, Any] = {}
        self.journal = RunJournal(GroupFolder(home.run(group.id).path).journal_file)
        self.state = GroupState(None, 1)
        self.starts: dict[int, list[TrialStart]] = {}
        self.stops: dict[int, str] = {}  # why trials were stopped, if not by the search
        self.changed: dict[int, int] = {}  # the last record of each trial
        self._settings: Row | None = None
        self.update(store, group)

    def update(self, store: Store, group: Run) -> None:
        """Read what is new. Raises CallError if the journal is damaged."""
        self.group = group
        self.search = store.facts(group.id).get("search") or self._before_start()
        self.state.repeats = int(self.search.get("repeats", 1))
        for record in self.journal.read():
            self._fold(record)

    def _fold(self, record: Record) -> None:
        number = record.get("trial", -1)
        before = self.state.legs_of(number)
        self.state.fold(record)
        for taken in record.get("trials", ()) if isinstance(record.get("trials"), list) else ():
            self.changed[taken["trial"]] = record["seq"]
        if number < 0:
            return
        self.changed[number] = record["seq"]
        for leg in self.state.legs_of(number):
            if leg not in before:
                self.starts.setdefault(number, []).append(TrialStart(leg, self.state.history.trials[number].resource))
        end = record.get("end", record)  # of one of its repeats
        if end["what"] == "stopped" and "why" in end:
            self.stops[number] = end["why"]

    def _before_start(self) -> Row:
        """What the scheduler will show of the search, before it has looked at it."""
        known = {name: self.settings()[name] for name in ("algorithm", "metric", "concurrency", "repeats")}
        return {**known, "trials": {}, "total": None, "paused": None, "used": None, "recent": [], "best": None}

    @property
    def metric(self) -> Metric | None:
        """What the search compares; None if it compares nothing."""
        found = self.search.get("metric")
        return Metric(**found) if found else None

    def settings(self) -> Row:
        """The search as its file describes it. Raises CallError if the folder has no file."""
        if self._settings is None:
            search = spec_of(self.home, self.group).search
            assert search is not None
            more = {name: thaw(getattr(search, name)) for name in _OF_FILE}
            self._settings = {**search_settings(search, self.group.id).as_json(), **more}
        return self._settings

    def summary(self) -> Row:
        """The progress, the best trial and the rungs."""
        row = run_row(self.group)
        return {**{name: row[name] for name in ABOUT}, **self.search, "rungs": self.rungs(), "seq": self.state.seq}

    def rungs(self) -> list[Row]:
        """Each rung of each bracket: its resource, how many trials reached it, ended there and went on, and the best of
        them."""
        rungs, metric = self.state.history.rungs, self.metric
        resources = {
            (self.state.history.trials[number].bracket, start.leg.rung): start.resource
            for number, starts in self.starts.items()
            for start in starts
        }
        found = []
        for (bracket, number), rung in sorted(rungs.items()):
            above = rungs.get((bracket, number + 1))
            best = rung.ranking(metric.maximize)[:1] if metric is not None else []
            found.append(
                {
                    "bracket": bracket,
                    "rung": number,
                    "resource": resources.get((bracket, number)),
                    "trials": len(rung.members),
                    "ended": len(rung.members) - rung.counts[RUNNING],
                    "promoted": 0 if above is None else len(above.members),
                    "best": {"trial": trial, "value": self.state.history.trials[trial].values[number]}
                    if best and (trial := best[0][1]) is not None
                    else None,
                }
            )
        return found

    def trials(self, changed_after: int = 0) -> list[Row]:
        """Each trial, in the order of their numbers. `changed_after`: only those that have changed since this record of
        the journal, and those that run."""
        return [self._row(trial) for trial in self._changed(changed_after)]

    def page(self, sort: str, changed_after: int, offset: int, limit: int) -> tuple[int, list[Row]]:
        """How many trials there are, and the rows of some of them: by `trial` or by `value`. Raises CallError."""
        found = self._changed(changed_after) if changed_after or sort != "value" else self._best_first()
        return len(found), [self._row(trial) for trial in found[offset : offset + limit]]

    def _changed(self, changed_after: int) -> list[SearchTrial]:
        return [
            trial
            for trial in self.state.history.trials
            if not changed_after or trial.state == RUNNING or self.changed.get(trial.number, 0) > changed_after
        ]

    def _row(self, trial: SearchTrial) -> Row:
        starts = self.starts.get(trial.number, [])
        resources = {start.leg.rung: start.resource for start in starts}
        runs = self.state.runs_of(self.group.id, trial.number)
        return {
            "trial": trial.number,
            "run": runs[0],
            "runs": runs,
            "state": trial.state,
            "bracket": trial.bracket,
            "rung": trial.rung,
            "resource": trial.resource,
            "value": trial.value,
            "interval": interval_of(self.state.samples.get(trial.number, ())),
            "params": dict(trial.params),
            "why": self._why(trial),
            "decision": starts[-1].leg.why if starts else "",
            "added": trial.added,
            "values": [
                {"rung": rung, "resource": resources.get(rung), "value": value} for rung, value in trial.values.items()
            ],
        }

    def _why(self, trial: SearchTrial) -> str:
        """Why it ended as it did; empty for one that runs or has a value."""
        if trial.state == REPORTED and trial.value is None and self.metric is not None:
            return f"it logged no `{self.metric.name}`"
        return trial.cause or ("" if trial.state == RUNNING else self.stops.get(trial.number, ""))

    def importance(self) -> Row:
        """How much each param decided: of the trials with the same amount of the resource, which most of them have."""
        metric = self.metric
        if metric is None:
            raise self._no_metric()
        settings = SearchSettings.from_json(self.settings())
        by_amount: dict[float, list[tuple[Mapping[str, Any], float]]] = {}
        for row in self.trials():
            for one in row["values"]:
                if one["value"] is not None and row["bracket"] != OUTSIDE:
                    by_amount.setdefault(one["resource"] or 0.0, []).append((row["params"], one["value"]))
        amount = max(by_amount, key=lambda amount: (len(by_amount[amount]), amount), default=0.0)
        found = importance(settings.dimensions, by_amount.get(amount, []), metric.maximize)
        params = [{"name": name, "share": share} for name, share in found.shares.items()]
        return {
            "params": sorted(params, key=lambda one: -one["share"]),
            "trials": found.trials,
            "best": found.best,
            "resource": amount or None,
        }

    def ranked(self) -> list[Row]:
        """The trials that have a value, best first; the older one if they are equal. Raises CallError."""
        return [self._row(trial) for trial in self._ranked()]

    def _ranked(self) -> list[SearchTrial]:
        metric = self.metric
        if metric is None:
            raise self._no_metric()
        sign = -1 if metric.maximize else 1
        found = [
            (sign * trial.value, trial.number)
            for trial in self.state.history.trials
            if trial.value is not None and not math.isnan(trial.value)
        ]
        return [self.state.history.trials[number] for _, number in sorted(found)]

    def _best_first(self) -> list[SearchTrial]:
        """All trials, those without a value last."""
        ranked = self._ranked()
        known = {trial.number for trial in ranked}
        return [*ranked, *(trial for trial in self.state.history.trials if trial.number not in known)]

    def _no_metric(self) -> CallError:
        return CallError(
            f"group {self.group.id} has no metric to compare: set `hptuning.metric: {{name: …}}` in its polyaxonfile"
        )

    def sorted_trials(self, sort: str) -> list[Row]:
        """All trials, by `trial` or by `value`: best first, those without one last. Raises CallError."""
        return [self._row(trial) for trial in self._best_first()] if sort == "value" else self.trials()

    def with_attempts(self, store: Store, rows: Iterable[Row]) -> list[Row]:
        """The rows with the status of their run, and when each attempt was queued, started and ended, of all runs of a
        trial. Trials that were taken from other groups have no attempts here."""
        own = [row for row in rows if row["trial"] not in self.state.runs]
        statuses = store.statuses_of(run for row in own for run in row["runs"])
        return [
            {
                **row,
                "status": changes[-1].status if (changes := statuses.get(row["run"], [])) else None,
                "attempts": [
                    {**attempt, "run": run}
                    for repeat, run in enumerate(row["runs"])
                    for attempt in self._attempts((row["trial"], repeat), statuses.get(run, []))
                ],
            }
            for row in rows
        ]

    def _attempts(self, key: LegKey, changes: list[StatusChange]) -> list[Row]:
        legs = [start.leg for start in self.starts.get(key[0], []) if start.leg.key == key]
        found: list[Row] = []
        for change in changes:
            at, attempt = change.at.isoformat(), change.attempt + (change.status in QUEUED)
            if not found or found[-1]["attempt"] != attempt:
                if found and found[-1]["finished_at"] is None:
                    found[-1]["finished_at"] = at  # its end was no status of its own
                rung = next((leg.rung for leg in reversed(legs) if leg.after < change.number), 0)
                new = {"attempt": attempt, "rung": rung, "queued_at": at, "started_at": None, "finished_at": None}
                found.append(new)
            if change.status in STARTED and found[-1]["started_at"] is None:
                found[-1]["started_at"] = at
            if change.status in DONE:
                found[-1]["finished_at"] = at
        return found
