"""/api/v1/runs/{run_id}/topology: the replicas of a run: host, progress, and which one failed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from phalanx import run_paths
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.insight.stragglers import ReplicaProgress, progress_of, progress_row
from phalanx.scheduler.active_runs import hosts_of
from phalanx.server.context import Context, Here
from phalanx.server.http.responses import JsonResponse
from phalanx.server.schemas.replicas import RunTopology
from phalanx.store import ReplicaRecord, Run
from phalanx.store.rows import replica_row
from phalanx.store.series.replica_steps import ReplicaSteps
from phalanx.stored_plan import PlanDamaged, PlannedReplica, read_plan

SHOWN = (
    *("name", "role", "index", "rank", "host", "status", "reason", "cause", "code", "signal"),
    *("started_at", "finished_at"),
)

router = APIRouter(prefix="/api/v1/runs/{run_id}", tags=["runs"])


@router.get("/topology", response_model=RunTopology)
def show_topology(
    run_id: str, request: Request, here: Here, attempt: Annotated[int | None, Query(ge=1, le=10**9)] = None
) -> JsonResponse:
    """Every replica of an attempt (default: the newest) with its last logged step and how far that is behind the
    leading replica; the straggler; and the replica that failed first, with its last lines."""
    run = here.find(run_id)
    chosen = attempt or max(1, run.attempt)
    replicas = under_way(here, run, here.store.replicas(run.id, chosen), chosen) or planned(here, run, chosen)
    steps: ReplicaSteps = request.app.state.steps
    known = steps.of(here.home.run(run.id).path, chosen, [replica.name for replica in replicas])
    progress = progress_of(known, {replica.name for replica in replicas if replica.status == "running"})
    return JsonResponse(
        {
            "attempt": chosen,
            "attempts": attempts_of(here, run),
            "front": progress.front,
            "straggler": progress.straggler,
            "first_failure": first_failure(here.store.facts(run.id), replicas, chosen),
            "replicas": [_row(replica, progress.replicas.get(replica.name)) for replica in replicas],
        }
    )


def attempts_of(here: Context, run: Run) -> list[int]:
    return sorted({change.attempt for change in here.store.statuses(run.id) if change.attempt >= 1})


def under_way(here: Context, run: Run, replicas: Sequence[ReplicaRecord], attempt: int) -> list[ReplicaRecord]:
    """Host and start time of running replicas: the store gets them only at their end."""
    attempt_folder = AttemptFolder(here.home.run(run.id).path, run.id, attempt, ())
    is_running = any(replica.status == "running" for replica in replicas)
    hosts = hosts_of(run, attempts.read_facts(attempt_folder) if is_running else {})
    found = []
    for replica in replicas:
        if replica.status != "running":
            found.append(replica)
            continue
        host = replica.host or hosts(replica.name)
        since = replica.started_at or _came_at(attempt_folder.folder(replica.name) / run_paths.AGENT)
        found.append(replica._replace(host=host, started_at=since))
    return found


def _came_at(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError:
        return None


def planned(here: Context, run: Run, attempt: int) -> list[ReplicaRecord]:
    """The planned replicas of an attempt without any state yet; none when there is no plan."""
    try:
        wanted = sorted(read_plan(here.home.run(run.id).path).replicas, key=lambda one: (one.rank, one.name))
        return [_waiting(run, attempt, one) for one in wanted]
    except (OSError, PlanDamaged):
        return []


def _waiting(run: Run, attempt: int, replica: PlannedReplica) -> ReplicaRecord:
    return ReplicaRecord(
        run_id=run.id,
        attempt=attempt,
        role=replica.role,
        number=replica.number,
        rank=replica.rank,
        status="waiting",
        reason="",
        host=None,
        pid=None,
        cause=None,
        code=None,
        signal=None,
        started_at=None,
        finished_at=None,
        peak={},
        local=replica.local,
    )


def first_failure(facts: Mapping[str, Any], replicas: Sequence[ReplicaRecord], attempt: int) -> dict[str, Any] | None:
    """The first failure that the scheduler found for this attempt; empty for other attempts."""
    failure = facts.get("failure")
    if not isinstance(failure, dict) or failure.get("attempt") != attempt:
        return None
    name = str(failure.get("replica", ""))
    culprit = next((replica for replica in replicas if replica.name == name), None)
    return {
        "replica": name,
        "rank": culprit.rank if culprit else None,
        "host": culprit.host if culprit else None,
        "why": failure.get("why", ""),
        "advice": failure.get("advice", ""),
        "lines": failure.get("lines", []),
        "at": culprit.finished_at.isoformat() if culprit and culprit.finished_at else None,
    }


def _row(replica: ReplicaRecord, progress: ReplicaProgress | None) -> dict[str, Any]:
    row = replica_row(replica)
    return {**{name: row[name] for name in SHOWN}, **progress_row(progress)}
