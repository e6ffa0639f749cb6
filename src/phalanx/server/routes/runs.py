"""/api/v1/runs: lists of runs, details of one run, and creation and end of external runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from phalanx.ingest import external_runs
from phalanx.server import external_lifecycle
from phalanx.server.auth.identities import Role
from phalanx.server.context import Caller, Context, Here, require_role, visible_projects
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.paths import check_run_id
from phalanx.server.http.request_models import json_body
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import EncodedJsonResponse, JsonResponse, RequestError, encoded
from phalanx.server.rows import artifact_row, summary_rows, waiting_row, waiting_rows
from phalanx.server.schemas.runs import (
    BeatAnswer,
    CreatedRun,
    GroupPage,
    RunChange,
    RunColumns,
    RunCreation,
    RunDetails,
    RunEnd,
    RunPage,
    RunRow,
)
from phalanx.store import Run
from phalanx.store.project_scope import ProjectScope
from phalanx.store.rows import replica_row, run_row, status_row
from phalanx.submission.checks import check_project
from phalanx.tracking import external_folder

COLUMNS_S = 5.0  # seconds that column names are cached: computing them reads all runs
PATIENCE_S = 120.0  # seconds that a client with heartbeats may be silent

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.get("/runs", response_model=RunPage)
def list_runs(  # noqa: PLR0913 - each is a parameter of the query
    here: Here,
    caller: Caller,
    *,
    q: Annotated[str, Query(max_length=10_000, description="for example `status:running, metric.loss:<0.1`")] = "",
    sort: Annotated[str, Query(max_length=600)] = "-created_at",
    limit: Limit = 20,
    offset: Offset = 0,
    project: Annotated[str | None, Query(max_length=600)] = None,
    columns: Annotated[str | None, Query(max_length=20_000, description="for example `params.lr,metric.loss`")] = None,
    fold: bool = False,
    archived: Annotated[bool, Query(description="also archived runs")] = False,
) -> JsonResponse:
    """A page of the runs that match a query, and the total count. With `columns`, rows have only those params, last
    metric values (`metric.loss`), minima and maxima (`min.loss`, `max.loss`, `best.loss`). With `fold`, without the
    trials of groups. Archived runs are left out, unless `archived` is set or the query has a condition on it."""
    shown = visible_projects(caller, project)
    which: dict[str, Any] = {"project": shown, "folded": fold, "unarchived": not archived, "user": caller.name}

    def make() -> bytes:
        runs = here.store.runs(q, sort, limit=limit, offset=offset, **which)
        found = {
            "count": here.store.count(q, **which),
            "archived": 0 if archived else here.store.count_archived(q, **which),
        }
        rows = waiting_rows(here.store, runs)
        return encoded({**found, "runs": rows if columns is None else [_cut(row, columns) for row in rows]})

    whose = caller.name if "starred" in q else ""
    key = ("runs", q, sort, limit, offset, shown, columns, fold, archived)
    return EncodedJsonResponse(here.recent.get(key, make, whose=whose))


def _cut(row: dict[str, Any], columns: str) -> dict[str, Any]:
    wanted = frozenset(columns.split(","))
    params = {name: value for name, value in row["params"].items() if f"params.{name}" in wanted}
    summary = {name: value for name, value in row["summary"].items() if f"metric.{name}" in wanted}
    best = {name: one for name, one in row["best"].items() if not wanted.isdisjoint(_best_columns(name))}
    return {**row, "params": params, "summary": summary, "best": best}


def _best_columns(metric: str) -> tuple[str, ...]:
    return f"min.{metric}", f"max.{metric}", f"best.{metric}"


@router.get("/runs/columns", response_model=RunColumns)
def list_columns(
    request: Request, here: Here, caller: Caller, project: Annotated[str | None, Query(max_length=600)] = None
) -> JsonResponse:
    """The names of params and metrics, with the number of runs that have them, most used first."""
    shown = visible_projects(caller, project)
    kept: CachedResponse[dict[str, Any]] = request.app.state.columns
    return JsonResponse(kept.get(shown, COLUMNS_S, lambda: _columns(here, shown)))


def _columns(here: Context, shown: ProjectScope | None) -> dict[str, Any]:
    found = {"params": here.store.param_names(shown), "metrics": here.store.metric_names(shown)}
    return {kind: [{"name": name, "runs": count} for name, count in names] for kind, names in found.items()}


@router.get("/groups", response_model=GroupPage)
def list_groups(
    here: Here,
    caller: Caller,
    *,
    project: Annotated[str | None, Query(max_length=600)] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JsonResponse:
    """A page of the groups of related runs, newest first, with the statuses of their runs."""
    found = here.store.groups(visible_projects(caller, project))
    groups = [
        {
            "group": group.name,
            "project": group.project,
            "runs": sum(group.statuses.values()),
            "statuses": group.statuses,
            "created_at": group.created_at.isoformat(),
        }
        for group in found[offset : offset + limit]
    ]
    return JsonResponse({"count": len(found), "groups": groups})


@router.get("/runs/{run_id}", response_model=RunDetails)
def show_run(run_id: str, here: Here) -> JsonResponse:
    """A run with its params, labels, metric summaries, statuses, replicas, artifacts and facts."""
    return JsonResponse(whole_run(here, here.find(run_id)))


def whole_run(here: Context, run: Run) -> dict[str, Any]:
    store = here.store
    whole = [] if run.group is None else [run.group]
    return {
        **waiting_row(store, run),
        "is_trial": bool(whole and store.facts_of(whole, "search")),
        "is_op": bool(whole and store.facts_of(whole, "pipeline")),
        "labels": store.labels(run.id),
        "facts": store.facts(run.id),
        "summaries": summary_rows(store.summaries(run.id)),
        "statuses": [status_row(change) for change in store.statuses(run.id)],
        "replicas": [replica_row(replica) for replica in store.replicas(run.id)],
        "artifacts": [artifact_row(artifact) for artifact in store.artifacts(run.id)],
    }


@router.post(
    "/runs",
    status_code=201,
    response_model=CreatedRun,
    responses={200: {"description": "The run existed", "model": CreatedRun}, **refusals(409, 507)},
)
def create_run(
    request: Request, body: Annotated[RunCreation, json_body(RunCreation)], here: Here, caller: Caller
) -> JsonResponse:
    """Create a run that the caller executes. Idempotent: an existing run is returned unchanged. With a `session`, which
    names one start of a client, an existing run is continued: `attempt` of the response is that of the session."""
    session = body.session or None
    run_id = check_run_id(body.id) if body.id is not None else None
    if run_id is not None and here.home.run(run_id).path.exists():
        known = external_runs.adopt(here.home, here.store, run_id)
        if not caller.has(Role.EDITOR, known.project):
            raise RequestError(409, f"the run id `{run_id}` is already used")
        if session is None:
            return JsonResponse(run_row(known))
        may_resume = body.resume != "never"
        attempt = external_lifecycle.attempt_of(here, known, session, may_resume=may_resume, patience_s=PATIENCE_S)
        here.wake()
        return JsonResponse({**run_row(here.find(known.id)), "attempt": attempt})
    project = body.project or "default"
    check_project(project)
    require_role(caller, project, Role.EDITOR)
    about = external_folder.Description(
        project=project,
        name=body.name or None,
        description=body.description or None,
        tags=tuple(body.tags or ()),
        params=body.params or {},
        user=caller.user_of(body.user or None),
        source="sent to the server",
        group=body.group or None,
    )
    labels = {name: str(value) for name, value in (body.labels or {}).items()}
    more = {"run_id": run_id, "patience_s": PATIENCE_S, "session": session}
    run = external_lifecycle.create(here, about, labels, body.created_at, **more)
    request.scope["state"]["about"] = {"run": run.id}
    here.wake()
    return JsonResponse(run_row(run), 201)


@router.post("/runs/{run_id}/finish", response_model=RunRow, responses=refusals(409, 507))
def finish_run(run_id: str, body: Annotated[RunEnd, json_body(RunEnd)], here: Here) -> JsonResponse:
    """Report the end of a run that the caller executed. The first report counts."""
    run = external_lifecycle.check(here.find(run_id))
    if body.attempt not in (None, run.attempt):  # an earlier client; the run was continued meanwhile
        return JsonResponse(run_row(run))
    status = body.status or "succeeded"
    return JsonResponse(run_row(external_lifecycle.finish(here, run, status, body.reason or "", body.at)))


@router.post("/runs/{run_id}/beat", response_model=BeatAnswer, responses=refusals(409, 507))
def beat(run_id: str, here: Here) -> JsonResponse:
    """Heartbeat of a run that the caller executes."""
    run = external_lifecycle.check(here.find(run_id))
    external_lifecycle.heartbeat(here, run)
    stop = here.home.run(run.id).stop_reason()
    return JsonResponse({"status": run.status, "stop": stop})


@router.patch("/runs/{run_id}", response_model=RunRow, responses=refusals(409, 507))
def change_run(run_id: str, body: Annotated[RunChange, json_body(RunChange)], here: Here) -> JsonResponse:
    """Change a run's name, description or tags, also in the run's folder. Fields that are left out stay as they
    are."""
    run = here.find(run_id)
    changed = body.model_dump(include=body.model_fields_set)
    described: dict[str, str] = {name: changed[name] or "" for name in ("name", "description") if name in changed}
    with here.run_writers.of(run.id) as writer:
        events: list[dict[str, Any]] = [{"kind": "describe", **described}] if described else []
        if "tags" in changed:
            events.append({"kind": "tags", "set": body.tags or []})
        writer.events(external_lifecycle.place(here, run), *events)
        here.store.update(
            run.id,
            name=described.get("name", ...),
            description=described.get("description", ...),
            tags=body.tags or [] if "tags" in changed else ...,
        )
    return JsonResponse(run_row(here.find(run_id)))
