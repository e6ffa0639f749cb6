"""Database rows for runs that only have folders, or whose folders have more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from phalanx import run_paths
from phalanx.artifacts.outputs import index_outputs, read_manifest
from phalanx.atomic_files import read_json
from phalanx.ends import Cause, End
from phalanx.home import dependencies
from phalanx.home.attempts import ReplicaPhase, ReplicaState, read_ends
from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.ingest.indexer import RunIndexer
from phalanx.ingest.replica_rows import replica_record
from phalanx.insight import autopsy
from phalanx.insight.autopsy import FirstFailure
from phalanx.store import Run, Store
from phalanx.store.statuses import Status
from phalanx.stored_plan import PlanDamaged, StoredPlan, read_plan
from phalanx.tracking.external_folder import BACKEND as OUTSIDE


def adopt_all(home: Home, store: Store, run_ids: Iterable[str]) -> None:
    """Adds rows for runs that have only folders. Of a run that was continued, no scheduler may have seen the earlier
    attempts."""
    for run_id in run_ids:
        run = home.run(run_id).read()
        if run is not None:
            add_to_store(store, home.run(run_id), run)
            if run.attempt > 1:
                with suppress(OSError):  # its end is indexed from all attempts again
                    index(home, store, run)
        (home.arrivals / run_id).unlink(missing_ok=True)


def add_to_store(store: Store, folder: RunFolder, run: Run) -> None:
    """Store a run and its history from its folder in one transaction: a row without its first statuses would look
    complete. Idempotent."""
    with store.transaction():
        store.add(run)
        for change in folder.history():
            store.record(change)
        open_dependencies(store, folder, run)


def open_dependencies(store: Store, folder: RunFolder, run: Run) -> None:
    """Let a run that has not started yet wait for the runs that its folder names."""
    waits_for = () if run.is_done else dependencies.read_dependencies(folder)
    if waits_for and not (run.attempt and dependencies.has_started(folder)):
        store.open_dependencies(run.id, [(other.run_id, other.condition) for other in waits_for])
        store.put_fact(run.id, "waiting", {"why": dependencies.waiting_words(waits_for)})


def index(home: Home, store: Store, run: Run) -> None:
    """Rebuild the rows of a run from its folder."""
    run = _with_requests(home.run(run.id), run)
    add_to_store(store, home.run(run.id), run)
    _add_replicas(store, home.run(run.id), run)
    _gather(home, store, run)
    index_outputs(store, run.id, read_manifest(home.run(run.id).path))
    for name, file in {"search": run_paths.SEARCH, run.kind: run_paths.PROGRESS}.items():
        fact = read_json(home.run(run.id).path / file)
        if fact is not None:
            store.put_fact(run.id, name, fact)


def _with_requests(folder: RunFolder, run: Run) -> Run:
    """What a run requests, if an older Phalanx wrote `run.json`: from its plan."""
    if run.replica_count is not None or run.backend == OUTSIDE:
        return run
    try:
        plan = read_plan(folder.path)
    except (OSError, PlanDamaged):
        return run

    def total(resource: str) -> float | None:
        found = [amount for one in plan.replicas if (amount := one.amount(resource).reserved) is not None]
        return sum(found) if found else None

    return run._replace(
        replica_count=sum(not one.local for one in plan.replicas),
        cpus=total("cpu"),
        memory_mib=total("memory"),
        gpus=total("gpu") or 0.0,
    )


def _add_replicas(store: Store, folder: RunFolder, run: Run) -> None:
    try:
        plan = read_plan(folder.path)
    except (OSError, PlanDamaged):
        return
    planned = plan.by_name
    failed_attempts = {
        change.attempt for change in folder.history() if change.status in (Status.WARNING, Status.FAILED)
    }
    for attempt in range(1, run.attempt + 1):
        ends = read_ends(folder, attempt)
        seen = {name: ReplicaState(ReplicaPhase.ENDED, end=end) for name, end in ends.items() if name in planned}
        failed = _failure(plan, ends) if attempt in failed_attempts else None
        again = run._replace(attempt=attempt)
        store.put_replicas([replica_record(again, planned[name], observed, failed) for name, observed in seen.items()])
        if failed is not None:
            store.put_fact(run.id, "failure", failed.as_fact(attempt))


def _failure(plan: StoredPlan, ends: Mapping[str, End]) -> FirstFailure | None:
    """The first failure of an attempt that failed. Without any other, its agent was stopped from outside Phalanx."""
    return autopsy.first_failure(plan, ends) or autopsy.first_failure(plan, ends, of=(Cause.STOPPED,))


def _gather(home: Home, store: Store, run: Run) -> None:
    """All data that its replicas tracked, in every attempt, and what users changed, also before the first one."""
    for attempt in range(1, max(1, run.attempt) + 1):
        names = [name for name, _ in home.run(run.id).replica_folders(attempt)]
        if names:
            indexer = RunIndexer(home, store, run._replace(attempt=attempt), names, is_replay=True)
            indexer.run_pass(is_over=True)
            indexer.close()
