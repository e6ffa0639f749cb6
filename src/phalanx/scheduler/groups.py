"""Groups in the scheduler's loop: takes in what happened to trials, asks the search, and carries out its decisions.

Every event and every decision is in the group's journal before anything follows from it. After a crash the next
scheduler reads the journal, carries out what is missing, and never asks the search for a recorded decision again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import write_atomic
from phalanx.ends import Cause
from phalanx.errors import CallError, SpecErrors
from phalanx.home.group_folder import trial_id
from phalanx.home.home import Home
from phalanx.home.journal import Record
from phalanx.ingest.adoption import adopt_all
from phalanx.insight.trial_metric import interval_of, value_of
from phalanx.scheduler.group_state import (
    CONCURRENCY,
    CONTINUED,
    EARLIER,
    PAUSED,
    RETRIED,
    GroupState,
    Leg,
    decision_record,
    event_record,
)
from phalanx.scheduler.journaled_run import JournaledRun
from phalanx.scheduler.ledger import Ledger
from phalanx.scheduler.resumes import queue_next_attempt
from phalanx.scheduler.search.budget import SearchBudget, used_by
from phalanx.scheduler.search.decisions import SearchProcess
from phalanx.scheduler.search.warm_start import earlier_trials
from phalanx.scheduler.search.watched_metrics import WatchedMetrics
from phalanx.spec.groups import search_settings
from phalanx.store import Run
from phalanx.store.statuses import Status
from phalanx.stored_plan import read_plan
from phalanx.submission.model import TrialPlace
from phalanx.submission.trials import TrialFactory, planned_rung
from phalanx.tune.history import FAILED, INVALID, REPORTED, STOPPED, History
from phalanx.tune.model import (
    Added,
    Changed,
    Failed,
    Finish,
    Invalid,
    Promote,
    Reported,
    Rerun,
    SearchAction,
    SearchSettings,
    Stopped,
    entry_as_json,
)
from phalanx.tune.rungs import hyperband_trials
from phalanx.tune.space import size
from phalanx.tune.suggestions import SuggestionFault

MEASURE_S = 0.5  # how often to read the metrics that early stopping watches
MOST_STARTS = 60  # trials that are made in a pass
MOST_RETRIES = 3  # of a trial at one rung whose node or agent was lost
ALIKE = 3  # so many first trials that fail for the same cause pause the group
USER = "its user"
INFRASTRUCTURE = frozenset([Cause.LOST, Cause.MEETING])
_NUMBERS = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)


class ActiveGroup(JournaledRun):
    """An unfinished group."""

    def __init__(self, ledger: Ledger, group: Run) -> None:
        super().__init__(ledger, group)
        self.factory = TrialFactory(self.home, group)
        self.settings = search_settings(self.factory.search, group.id)
        self.budget = SearchBudget.of(self.factory.search.budget, group.created_at)
        self.state = self._folded(self.journal.read())
        # the agents of packed trials end with their job
        self.infrastructure = INFRASTRUCTURE | ({Cause.STOPPED} if self.factory.is_packed else set())
        self.started = {leg.key for leg in self.state.legs.values() if self._is_carried_out(leg)}
        self.search = SearchProcess(self.folder, self.settings)
        self.metrics = WatchedMetrics(self.home, self.store, self.settings)
        self.measure_at = 0.0
        self.shown: Mapping[str, Any] | None = None

    def _folded(self, records: Sequence[Record]) -> GroupState:
        search, ahead = self.factory.search, self.factory.jobs.ahead if self.factory.jobs is not None else 0
        return GroupState(self.settings.metric, search.concurrency, records, search.repeats, ahead)

    @property
    def limit(self) -> int:  # type: ignore[override] # it changes
        """How many of its trials may run at the same time."""
        return 0 if self.state.paused is not None else self.state.concurrency

    def close(self) -> None:
        super().close()
        self.search.close()

    def _is_carried_out(self, leg: Leg) -> bool:
        """Whether its run has begun this attempt."""
        run_id = trial_id(self.id, *leg.key)
        is_begun = self.is_carried_out(run_id, leg.after)
        return is_begun and planned_rung(self.home.run(run_id).path) in (leg.rung, None)

    # one step ----------------------------------------------------------------------------------------------------

    def step(self, group: Run) -> None:
        if not self.state.seq and self.factory.search.warm_start:
            self._record(self._earlier(group))
        requests = self.folder.requests()
        for name, asked in requests:
            self._take(name, asked)
        self._record(self._ended())
        self._record(map(event_record, self.state.repeated()))
        self._record(self._arrived())
        self._warn()
        stop = self.folder.stop_reason()
        finish = self.state.history.finish
        if stop is None and finish is None and self.state.paused is None:
            self._decide()
            finish = self.state.history.finish
        if stop is not None or (finish is not None and finish.outcome != "done"):
            self._stop_trials(stop or (finish.why if finish is not None else ""))
        else:
            if finish is not None and self.state.ahead:
                self._stop_waiting(finish.why)
            self._carry_out()
        self._show(group)
        for name, _ in requests:
            self.folder.forget_request(name)  # who waits for it then sees its effect
        if not self.state.running and (stop is not None or finish is not None):
            self._conclude(group, stop)

    def _record(self, contents: Iterator[dict[str, Any]]) -> None:
        """Append to the journal, then fold."""
        for record in self.journal.append(contents):
            before = self.state.legs_of(record.get("trial", -1))
            self.state.fold(record)
            # those that have ended, or have a new leg
            self.started -= {leg.key for leg in before if self.state.legs.get(leg.key) != leg}

    # what happened -----------------------------------------------------------------------------------------------

    def _take(self, name: str, asked: Mapping[str, Any]) -> None:
        """Record what a user asked for. Invalid requests are dropped: the command that made them has checked them."""
        if name not in self.state.taken:
            if asked.get("what") == "rerun":
                self._record(self._reruns())  # repeated after a crash, it finds those that are left
            content = _request(asked)
            self._record(iter([] if content is None else [{**content, "request": name}]))

    def _earlier(self, group: Run) -> Iterator[dict[str, Any]]:
        """The results of earlier groups: one record, so that all of them are there or none."""
        measure, names = self.factory.measure, self.factory.search.warm_start
        if measure is not None:
            found = earlier_trials(self.ledger, group, names, self.settings.dimensions, measure)
            yield {"what": EARLIER, "trials": [{"trial": number, **one} for number, one in enumerate(found)]}

    def _reruns(self) -> Iterator[dict[str, Any]]:
        """Trials that failed, or that a user stopped, run again. A stop of the search has a cause."""
        for trial in self.state.history.trials:
            if trial.state == FAILED or (trial.state == STOPPED and not trial.cause):
                after = _lengths(self.home, self.state.own_runs(self.id, trial.number))
                yield event_record(Rerun(trial.number, "the group was resumed"), after=after)

    def _ended(self) -> Iterator[dict[str, Any]]:
        """The ends of trials."""
        legs = {trial_id(self.id, *key): self.state.legs[key] for key in self.started}
        seen = {stamp.id: stamp for stamp in self.store.seen_of(legs)}
        for run_id, leg in legs.items():
            if run_id not in seen:
                if self.home.run(run_id).path.exists():
                    adopt_all(self.home, self.store, [run_id])
                else:
                    yield self.state.end_record(leg, Stopped(leg.trial, leg.rung), why="its run was removed")
            elif seen[run_id].status in _DONE:
                run = self.store.find(run_id)
                *measured, end = self._end_of(run, leg)
                yield from measured
                yield {**end, **self._used_by(run)}

    def _end_of(self, run: Run, leg: Leg) -> Iterator[dict[str, Any]]:
        facts = self.store.facts(run.id)
        invalid = facts.get("invalid")
        if isinstance(invalid, dict) and invalid.get("attempt") == run.attempt:
            yield self.state.end_record(leg, Invalid(leg.trial, str(invalid.get("why", ""))))
            return
        if self.settings.watched and not leg.repeat:
            yield from map(event_record, self.metrics.news(run.id, leg.trial))
        measure = self.factory.measure
        value = None
        if measure is not None:
            value = value_of(self.home.run(run.id).path, self.store.summaries(run.id), measure)
        if run.status == Status.SUCCEEDED:
            yield self.state.end_record(leg, Reported(leg.trial, leg.rung, value))
        elif run.status == Status.FAILED:
            failure = facts.get("failure") or {}
            tried = self.state.retries[leg.key, leg.rung]
            is_lost = failure.get("cause") in self.infrastructure and failure["attempt"] == run.attempt
            if is_lost and tried < MOST_RETRIES:
                again = {"trial": leg.trial, "rung": leg.rung, "repeat": leg.repeat, "why": run.reason}
                yield {"what": RETRIED, **again, "after": len(self.home.run(run.id).history())}
            else:
                yield self.state.end_record(leg, Failed(leg.trial, leg.rung, run.reason))
        else:
            yield self.state.end_record(leg, Stopped(leg.trial, leg.rung, value), why=run.reason)

    def _used_by(self, run: Run) -> dict[str, Any]:
        if self.budget is None:
            return {}
        plan = read_plan(self.home.run(run.id).path)
        return {"used": used_by(run, self.store.statuses(run.id), plan)}

    def _arrived(self) -> Iterator[dict[str, Any]]:
        """New values of the metrics that early stopping watches: of repeated trials those of their first run."""
        now = time.monotonic()
        if not self.settings.watched or now < self.measure_at:
            return
        self.measure_at = now + MEASURE_S
        runs = {trial_id(self.id, number): number for number, repeat in self.started if not repeat}
        self.metrics.keep_only(runs)
        for run_id, number in runs.items():
            yield from map(event_record, self.metrics.news(run_id, number))

    def _warn(self) -> None:
        """Pause if the first trials all failed for the same cause: more of them would only cost time."""
        history = self.state.history
        failed = history.counts[FAILED]
        if self.state.has_warned or self.state.paused is not None or failed < ALIKE:
            return
        if history.counts[REPORTED] or history.counts[STOPPED] or history.counts[INVALID]:
            return
        causes = {_NUMBERS.sub("#", trial.cause) for trial in history.trials if trial.state == FAILED}
        if len(causes) == 1:
            cause = next(trial.cause for trial in history.trials if trial.state == FAILED)
            why = f"the first {failed} trials failed with the same error: {cause}"
            self._record(iter([{"what": PAUSED, "why": why, "trials": failed}]))

    # what is decided ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Ask the search, if anything has changed since it was last asked."""
        over = self.budget.exhausted(self.state.used, datetime.now(UTC)) if self.budget is not None else None
        if over is not None:
            self._record(iter([decision_record(Finish(over), self.state.seq)]))
            return
        try:
            decision = self.search.ask(self.state)
        except SuggestionFault as fault:
            self._record(iter([{"what": PAUSED, "why": f"the search failed: {fault}"}]))
            return
        if decision is not None:
            self._record(record for action in decision.actions for record in self._decided(action, decision.seen_up_to))

    def _decided(self, action: SearchAction, seen_up_to: int) -> Iterator[dict[str, Any]]:
        """The record of an action; with `reuse`, it may have the result of the same point of an earlier group."""
        if isinstance(action, Promote):
            yield decision_record(action, seen_up_to, _lengths(self.home, self.state.own_runs(self.id, action.trial)))
            return
        earlier = self.state.reusable(action) if self.factory.search.reuse else None
        reused = {} if earlier is None else {"run": earlier["run"], "reused": earlier["value"]}
        yield {**decision_record(action, seen_up_to), **reused}

    def _carry_out(self) -> None:
        """Start the recorded attempts that are not started yet, and stop trials that are to be stopped."""
        most = min(self.state.most_legs, len(self.started) + MOST_STARTS)  # a pass must not take long
        for leg in list(self.state.legs.values()):
            trial = self.state.history.trials[leg.trial]
            if trial.is_stopping:
                self._stop_leg(leg, trial.cause)
            elif leg.key not in self.started and self.state.paused is None:
                if len(self.started) >= most:
                    continue
                try:
                    if self._start(leg):
                        self.started.add(leg.key)
                except (CallError, SpecErrors) as fault:
                    self._record(iter([self.state.end_record(leg, Failed(leg.trial, leg.rung, str(fault)))]))

    def _start(self, leg: Leg) -> bool:
        """Make the run of a trial, or queue its next attempt. False if its run has not ended yet."""
        trial = self.state.history.trials[leg.trial]
        run_id = trial_id(self.id, *leg.key)
        source = trial_id(self.id, leg.source, leg.repeat) if leg.source is not None else None
        seed = leg.repeat if self.factory.search.repeat is not None else None
        place = TrialPlace(self.id, leg.trial, leg.rung, trial.resource, seed)
        if not self.home.run(run_id).path.exists():
            self.factory.create(self.store, self.factory.prepare(place, trial.params), source)
            return True
        run = self.row(run_id)
        if not run.is_done:
            return False
        if planned_rung(self.home.run(run_id).path) != leg.rung:
            prepared = self.factory.prepare(place, trial.params)
            if source is not None or not leg.resume:
                self.factory.start_over(run, source)
            self.factory.replan(self.store, prepared)
        self.home.keep_environment(run_id, self.factory.environment.variables)
        queue_next_attempt(self.home, self.store, run, f"rung {leg.rung}: {leg.why}" if leg.rung else leg.why)
        return True

    def _stop_trials(self, why: str) -> None:
        for leg in list(self.state.legs.values()):
            self._stop_leg(leg, why)

    def _stop_waiting(self, why: str) -> None:
        """Stop the trials that were made ahead and do not run yet: the search is over."""
        legs = {trial_id(self.id, *leg.key): leg for leg in self.state.legs.values()}
        seen = {stamp.id: stamp.status for stamp in self.store.seen_of(legs)}
        for run_id, leg in legs.items():
            if leg.key not in self.started or seen.get(run_id) in _WAITING:
                self._stop_leg(leg, why)

    def _stop_leg(self, leg: Leg, why: str) -> None:
        """Stop its run; one that was not started yet never is."""
        if leg.key in self.started:
            self.home.run(trial_id(self.id, *leg.key)).ask_to_stop(why)
        else:
            self._record(iter([self.state.end_record(leg, Stopped(leg.trial, leg.rung), why=why)]))

    # its own status ----------------------------------------------------------------------------------------------

    def _show(self, group: Run) -> None:
        """Keep its status."""
        state = self.state
        if state.paused is not None and group.status != Status.WARNING:
            self.ledger.change(group, Status.WARNING, f"paused: {state.paused}")
        elif state.paused is None and group.status != Status.RUNNING:
            self.ledger.change(group, Status.RUNNING, f"{self.settings.algorithm}, {state.concurrency} at a time")
        self._show_search()

    def _show_search(self) -> None:
        """Keep a summary of the search in the store."""
        state = self.state
        best = state.best
        shown = {
            "algorithm": self.settings.algorithm,
            "metric": None if self.settings.metric is None else self.settings.metric._asdict(),
            "trials": {name: count for name, count in state.history.counts.items() if count},
            "total": _total(self.state.history, self.settings, self.factory.search.size),
            "concurrency": state.concurrency,
            "repeats": state.repeats,
            "paused": state.paused,
            "used": state.used._asdict() if self.budget is not None else None,
            "recent": list(state.recent),
            "best": None
            if best is None
            else {
                "trial": best.trial,
                "run": state.runs_of(self.id, best.trial)[0],
                "value": best.value,
                "interval": interval_of(best.samples),
                "params": dict(state.history.trials[best.trial].params),
            },
        }
        if shown != self.shown:
            self.store.put_fact(self.id, "search", shown)
            self.shown = shown

    def _conclude(self, group: Run, stop: str | None) -> None:
        group = self.store.find(group.id)
        finish = self.state.history.finish
        self.is_over = True
        write_atomic(self.folder.path / run_paths.SEARCH, json.dumps(self.shown).encode())  # to rebuild the store from
        if stop is not None:
            self.ledger.finish(group, Status.STOPPED, stop)
            return
        assert finish is not None
        if finish.outcome == "failed":
            self.ledger.finish(group, Status.FAILED, finish.why)
        else:
            self.ledger.finish(group, Status.SUCCEEDED, finish.why)


_DONE = frozenset(["succeeded", "failed", "stopped", "skipped", "upstream_failed"])
_WAITING = frozenset(["created", "resuming", "warning", "building", "scheduled"])


def _total(history: History, settings: SearchSettings, n: int | None) -> int | None:
    """How many trials there will be, with those that users added; None if that is not known. `n`: by the file."""
    n = n if history.n is None else history.n
    if n is None and settings.algorithm == "hyperband":
        n = hyperband_trials(settings.options["max_iter"], settings.options["eta"])
    points = size(settings.dimensions)
    if n is not None and points is not None:
        n = min(n, points)  # no point is tried twice
    added = len(history.trials) - sum(history.own.values()) + len(history.open_points)
    return None if n is None else n + added


def _lengths(home: Home, runs: Sequence[str]) -> int | list[int]:
    """How many statuses the run of a trial has now; if there are several, each of them."""
    found = [len(home.run(run_id).history()) for run_id in runs]
    return found if len(found) > 1 else found[0]


def _request(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record of a user's request; None for one that is invalid."""
    try:
        match asked["what"]:
            case "pause":
                return {"what": PAUSED, "why": f"by {asked.get('by') or USER}"}
            case "continue" | "rerun":
                return {"what": CONTINUED}
            case "finish":
                return entry_as_json(Finish(f"ended by {asked.get('by') or USER}: no new trials were started"))
            case "concurrency":
                return {"what": CONCURRENCY, "n": max(1, int(asked["n"]))}
            case "add":
                return event_record(Added(dict(asked["params"])))
            case "extend":
                return event_record(Changed(int(asked["n"])))
    except (KeyError, TypeError, ValueError):
        pass
    return None
