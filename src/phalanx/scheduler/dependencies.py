"""Runs that wait for other runs: released when all their conditions hold, ended when one of them never will."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from phalanx.home.dependencies import Dependency, RequiredEnd, has_started, read_dependencies, waiting_words
from phalanx.scheduler.ledger import Ledger
from phalanx.store import Run
from phalanx.store.dependencies import OpenDependency
from phalanx.store.kinds import WHOLES
from phalanx.store.statuses import Status

Guard = Callable[[Callable[[Run], Any], Run, Any], Any]


def settle_all(
    ledger: Ledger, guarded: Guard, up_to_date: Callable[[Run], Run | None], is_queued: Callable[[Run], bool]
) -> None:
    """Settle all dependencies on runs that have ended. `guarded` calls a function so that an error of one run does not
    block the others; `up_to_date` reads the history of a run; `is_queued`: it waits in the queue of its engine."""
    for run_id, dependencies in groupby(ledger.store.decided_dependencies(), attrgetter("run_id")):
        run = ledger.store.find(run_id)
        found = run if run.kind in WHOLES else guarded(up_to_date, run, run)
        if found is None or found.is_done or (found.attempt and has_started(ledger.home.run(run_id))):
            ledger.store.close_dependencies(run_id)  # it has ended, or had started before
        elif not is_queued(found):
            guarded(partial(_settle, ledger, list(dependencies)), found, None)


def _settle(ledger: Ledger, dependencies: list[OpenDependency], run: Run) -> None:
    """Close the dependencies of a waiting run that are fulfilled, and end the run if one of them cannot be."""
    known = {other.run_id: other for other in read_dependencies(ledger.home.run(run.id))}
    for open_one in dependencies:
        condition = RequiredEnd(open_one.condition)
        if condition.holds(open_one.status) is False:
            end(ledger, run, open_one)
            return
    built = [known[one.upstream] for one in dependencies if one.upstream in known and known[one.upstream].is_build]
    if built and run.status == Status.BUILDING:
        ledger.change(run, Status.CREATED, f"{built[0].label} succeeded")
    with ledger.store.transaction():
        for open_one in dependencies:
            ledger.store.close_dependencies(run.id, open_one.upstream)
        left = {open_one.upstream for open_one in ledger.store.open_dependencies_of(run.id)}
        words = waiting_words(other for other in known.values() if other.run_id in left)
        ledger.store.put_fact(run.id, "waiting", {"why": words} if left else None)


def end(ledger: Ledger, run: Run, failed: OpenDependency) -> None:
    """End a run that waits for something that will not happen."""
    known = {other.run_id: other for other in read_dependencies(ledger.home.run(run.id))}
    other = known.get(failed.upstream) or Dependency(failed.upstream, RequiredEnd(failed.condition))
    status = Status.FAILED if other.is_build else Status.UPSTREAM_FAILED
    failure = ledger.store.facts(other.run_id).get("failure") if other.is_build and failed.status is not None else None
    if isinstance(failure, dict):
        ledger.store.put_fact(run.id, "failure", {**failure, "attempt": run.attempt, "replica": other.label})
    ledger.finish(run, status, _why_not(ledger, other, failed.status))
    ledger.store.close_dependencies(run.id)
    ledger.store.put_fact(run.id, "waiting", None)


def _why_not(ledger: Ledger, other: Dependency, status: str | None) -> str:
    if status is None and other.is_build:
        return f"{other.label} was removed before it had ended"
    if status is None:
        return f"{other.label} was removed; this run waited for it to {other.verb}"
    reason = ledger.store.find(other.run_id).reason
    if other.is_build:
        return f"{other.label} ended as {status}: {reason}; `phalanx logs {other.run_id}` shows its output"
    return f"{other.label} ended as {status}: {reason}; this run waited for it to {other.verb}"
