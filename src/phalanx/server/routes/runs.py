"""/api/v1/runs: lists of runs, details of one run, and creation and end of external runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from phalanx.ingest import external_runs
from phalanx.server import external_lifecycle
from phalanx.server.auth.identities import Role
from phalanx.server.context import Caller, Context, Here, require_role, visible_projects
from phalanx.server.http import openapi
from phalanx.server.http.bodies import JsonBody, json_object
from phalanx.server.http.fields import LONGEST_TEXT, mapping, string_list, text, timestamp
from phalanx.server.http.paths import check_run_id
from phalanx.server.http.response_cache import CachedResponse
from phalanx.server.http.responses import EncodedJsonResponse, JsonResponse, RequestError, encoded
from phalanx.server.rows import artifact_row, summary_rows, waiting_row, waiting_rows
from phalanx.store import Run
from phalanx.store.rows import replica_row, run_row, status_row
from phalanx.submission.checks import check_project
from phalanx.tracking import external_folder

COLUMNS_S = 5.0  # seconds that column names are cached: computing them reads all runs
PATIENCE_S = 120.0  # seconds that a client with heartbeats may be silent
ENDS = ("succeeded", "failed", "stopped")

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.get("/runs")
def list_runs(  # noqa: PLR0913 - each is a parameter of the query
    here: Here,
    caller: Caller,
    *,
    q: Annotated[str, Query(max_length=10_000, description="for example `status:running, metric.loss:<0.1`")] = "",
    sort: Annotated[str, Query(max_length=600)] = "-created_at",
    limit: Annotated[int, Query(ge=0, le=10_000)] = 20,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    project: Annotated[str | None, Query(max_length=600)] = None,
    columns: Annotated[str | None, Query(max_length=20_000, description="for example `params.lr,metric.loss`")] = None,
    fold: bool = False,
) -> JsonResponse:
    """A page of the runs that match a query, and the total count. With `columns`, rows have only those params, last
    metric values (`metric.loss`), minima and maxima (`min.loss`, `max.loss`). With `fold`, without the trials of
    groups."""
    shown = visible_projects(caller, project)

    def make() -> bytes:
        runs = here.store.runs(q, sort, limit=limit, offset=offset, project=shown, folded=fold)
        count = here.store.count(q, project=shown, folded=fold)
        rows = waiting_rows(here.store, runs)
        return encoded({"count": count, "runs": rows if columns is None else [_cut(row, columns) for row in rows]})

    return EncodedJsonResponse(here.recent.get(("runs", q, sort, limit, offset, shown, columns, fold), make))


def _cut(row: dict[str, Any], columns: str) -> dict[str, Any]:
    wanted = frozenset(columns.split(","))
    params = {name: value for name, value in row["params"].items() if f"params.{name}" in wanted}
    summary = {name: value for name, value in row["summary"].items() if f"metric.{name}" in wanted}
    best = {name: one for name, one in row["best"].items() if not wanted.isdisjoint((f"min.{name}", f"max.{name}"))}
    return {**row, "params": params, "summary": summary, "best": best}


@router.get("/runs/columns")
def list_columns(
    request: Request, here: Here, caller: Caller, project: Annotated[str | None, Query(max_length=600)] = None
) -> JsonResponse:
    """The names of params and metrics, with the number of runs that have them, most used first."""
    shown = visible_projects(caller, project)
    kept: CachedResponse[dict[str, Any]] = request.app.state.columns
    return JsonResponse(kept.get(shown, COLUMNS_S, lambda: _columns(here, shown)))


def _columns(here: Context, shown: str | frozenset[str] | None) -> dict[str, Any]:
    found = {"params": here.store.param_names(shown), "metrics": here.store.metric_names(shown)}
    return {kind: [{"name": name, "runs": count} for name, count in names] for kind, names in found.items()}


@router.get("/groups")
def list_groups(
    here: Here, caller: Caller, project: Annotated[str | None, Query(max_length=600)] = None
) -> JsonResponse:
    """Groups of related runs, newest first, and their status."""
    groups = [
        {
            "group": group.name,
            "project": group.project,
            "runs": sum(group.statuses.values()),
            "statuses": group.statuses,
            "created_at": group.created_at.isoformat(),
        }
        for group in here.store.groups(visible_projects(caller, project))
    ]
    return JsonResponse({"groups": groups})


@router.get("/projects")
def list_projects(here: Here, caller: Caller) -> JsonResponse:
    """Every project and its number of runs."""
    found = here.store.projects(visible_projects(caller))
    return JsonResponse({"projects": [{"name": name, "runs": count} for name, count in found]})


@router.get("/runs/{run_id}")
def show_run(run_id: str, here: Here) -> JsonResponse:
    """A run with its params, labels, metric summaries, statuses, replicas, artifacts and facts."""
    return JsonResponse(whole_run(here, here.find(run_id)))


def whole_run(here: Context, run: Run) -> dict[str, Any]:
    store = here.store
    is_trial = run.group is not None and run.group in store.facts_of([run.group], "search")
    return {
        **waiting_row(store, run),
        "is_trial": is_trial,
        "labels": store.labels(run.id),
        "facts": store.facts(run.id),
        "summaries": summary_rows(store.summaries(run.id)),
        "statuses": [status_row(change) for change in store.statuses(run.id)],
        "replicas": [replica_row(replica) for replica in store.replicas(run.id)],
        "artifacts": [artifact_row(artifact) for artifact in store.artifacts(run.id)],
    }


ABOUT = {"name": openapi.TEXT, "description": openapi.TEXT, "tags": openapi.TEXTS}


@router.post(
    "/runs",
    status_code=201,
    openapi_extra=openapi.body(
        {
            **ABOUT,
            "id": openapi.TEXT,
            "project": openapi.TEXT,
            "params": openapi.ANYTHING,
            "labels": openapi.ANYTHING,
            "user": openapi.TEXT,
            "group": openapi.TEXT,
            "session": openapi.TEXT,
            "resume": {"enum": ["allow", "must", "never"]},
            "created_at": openapi.SECONDS,
        }
    ),
)
def create_run(request: Request, body: JsonBody, here: Here, caller: Caller) -> JsonResponse:
    """Create a run that the caller executes. Idempotent: an existing run is returned unchanged. With a `session`, which
    names one start of a client, an existing run is continued: `attempt` of the response is that of the session."""
    wanted = json_object(body)
    session = text(wanted, "session", 100) or None
    run_id = check_run_id(text(wanted, "id")) if wanted.get("id") is not None else None
    if run_id is not None and here.home.run(run_id).path.exists():
        known = external_runs.adopt(here.home, here.store, run_id)
        if not caller.has(Role.EDITOR, known.project):
            raise RequestError(409, f"the run id `{run_id}` is already used")
        if session is None:
            return JsonResponse(run_row(known))
        may_resume = text(wanted, "resume", 20) != "never"
        attempt = external_lifecycle.attempt_of(here, known, session, may_resume=may_resume, patience_s=PATIENCE_S)
        here.wake()
        return JsonResponse({**run_row(here.find(known.id)), "attempt": attempt})
    project = text(wanted, "project", 500) or "default"
    check_project(project)
    require_role(caller, project, Role.EDITOR)
    about = external_folder.Description(
        project=project,
        name=text(wanted, "name", 500) or None,
        description=text(wanted, "description") or None,
        tags=tuple(string_list(wanted, "tags")),
        params=mapping(wanted, "params"),
        user=caller.user_of(text(wanted, "user", 200) or None),
        source="sent to the server",
        group=text(wanted, "group", 500) or None,
    )
    labels = {name: str(value) for name, value in mapping(wanted, "labels").items()}
    created_at = timestamp(wanted, "created_at")
    more = {"run_id": run_id, "patience_s": PATIENCE_S, "session": session}
    run = external_lifecycle.create(here, about, labels, created_at, **more)
    request.scope["state"]["about"] = {"run": run.id}
    here.wake()
    return JsonResponse(run_row(run), 201)


@router.post(
    "/runs/{run_id}/finish",
    openapi_extra=openapi.body(
        {
            "status": {"enum": list(ENDS)},
            "reason": openapi.TEXT,
            "at": openapi.SECONDS,
            "attempt": openapi.WHOLE,
        }
    ),
)
def finish_run(run_id: str, body: JsonBody, here: Here) -> JsonResponse:
    """Report the end of a run that the caller executed. The first report counts."""
    wanted = json_object(body)
    status = text(wanted, "status", 20) or "succeeded"
    if status not in ENDS:
        raise RequestError(400, f"the status of an ended run must be one of {', '.join(ENDS)}, not `{status}`")
    run = external_lifecycle.check(here.find(run_id))
    if wanted.get("attempt") not in (None, run.attempt):  # an earlier client; the run was continued meanwhile
        return JsonResponse(run_row(run))
    at = timestamp(wanted, "at")
    return JsonResponse(run_row(external_lifecycle.finish(here, run, status, text(wanted, "reason", 1000), at)))


@router.post("/runs/{run_id}/beat")
def beat(run_id: str, here: Here) -> JsonResponse:
    """Heartbeat of a run that the caller executes."""
    run = external_lifecycle.check(here.find(run_id))
    external_lifecycle.heartbeat(here, run)
    stop = here.home.run(run.id).stop_reason()
    return JsonResponse({"status": run.status, "stop": stop})


@router.patch("/runs/{run_id}", openapi_extra=openapi.body(ABOUT))
def change_run(run_id: str, body: JsonBody, here: Here) -> JsonResponse:
    """Change a run's name, description or tags, also in the run's folder."""
    wanted = json_object(body)
    unknown = set(wanted) - {"name", "description", "tags"}
    if unknown:
        raise RequestError(
            400, f"`{min(unknown)[:100]}` of a run cannot be changed", "only name, description and tags can be changed"
        )
    run = here.find(run_id)
    about = external_folder.Description(name=text(wanted, "name", 500), tags=tuple(string_list(wanted, "tags")))
    external_lifecycle.check_names(about)
    with here.run_writers.of(run.id) as writer:
        described = {
            name: text(wanted, name, 500 if name == "name" else LONGEST_TEXT) for name in wanted if name != "tags"
        }
        events: list[dict[str, Any]] = [{"kind": "describe", **described}] if described else []
        if "tags" in wanted:
            events.append({"kind": "tags", "set": string_list(wanted, "tags")})
        writer.events(external_lifecycle.place(here, run), *events)
        here.store.update(
            run.id,
            name=described.get("name", ...),
            description=described.get("description", ...),
            tags=string_list(wanted, "tags") if "tags" in wanted else ...,
        )
    return JsonResponse(run_row(here.find(run_id)))
