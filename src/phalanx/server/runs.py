"""/api/v1/runs: lists of runs, one run with all that is known of it, and runs that are made and ended elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from phalanx.scheduler import tracked
from phalanx.server import outside
from phalanx.server.answers import Answer, Refusal
from phalanx.server.context import READING, WRITING, Context, Here
from phalanx.server.paths import check_run_id
from phalanx.server.receiving import JsonBody, json_object
from phalanx.server.rows import artifact_row, replica_row, run_row, status_row, summary_rows
from phalanx.store import Run
from phalanx.tracking import folders

PATIENCE_S = 120.0  # how long a client that beats may be silent
LONGEST_TEXT = 100_000
MOST_ENTRIES = 10_000
ENDS = ("succeeded", "failed", "stopped")

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.get("/runs", dependencies=READING)
def list_runs(  # noqa: PLR0913 - each is a parameter of the query
    here: Here,
    *,
    q: Annotated[str, Query(max_length=10_000, description="such as `status:running, metric.loss:<0.1`")] = "",
    sort: Annotated[str, Query(max_length=600)] = "-created_at",
    limit: Annotated[int, Query(ge=0, le=10_000)] = 20,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    project: Annotated[str | None, Query(max_length=600)] = None,
) -> Answer:
    """A page of the runs that a query finds, and how many it finds in all."""
    runs = here.store.runs(q, sort, limit=limit, offset=offset, project=project)
    count = here.store.count(q, project=project)
    return Answer({"count": count, "runs": [run_row(run) for run in runs]})


@router.get("/projects", dependencies=READING)
def list_projects(here: Here) -> Answer:
    """Every project, and how many runs it has."""
    return Answer({"projects": [{"name": name, "runs": count} for name, count in here.store.projects()]})


@router.get("/runs/{run_id}", dependencies=READING)
def show_run(run_id: str, here: Here) -> Answer:
    """A run with its params, labels, summaries of metrics, statuses, replicas, artifacts and facts."""
    return Answer(whole_run(here, here.find(run_id)))


def whole_run(here: Context, run: Run) -> dict[str, Any]:
    store = here.store
    return {
        **run_row(run),
        "labels": store.labels(run.id),
        "facts": store.facts(run.id),
        "summaries": summary_rows(store.summaries(run.id)),
        "statuses": [status_row(change) for change in store.statuses(run.id)],
        "replicas": [replica_row(replica) for replica in store.replicas(run.id)],
        "artifacts": [artifact_row(artifact) for artifact in store.artifacts(run.id)],
    }


@router.post("/runs", dependencies=WRITING, status_code=201)
def create_run(body: JsonBody, here: Here) -> Answer:
    """A run that somebody else executes. One that is there already is answered as it is: it may be asked for again."""
    wanted = json_object(body)
    run_id = check_run_id(text(wanted, "id")) if wanted.get("id") is not None else None
    if run_id is not None and here.home.run(run_id).path.exists():
        return Answer(run_row(tracked.adopt(here.home, here.store, run_id)))
    about = folders.Description(
        project=text(wanted, "project", 500) or "default",
        name=text(wanted, "name", 500) or None,
        description=text(wanted, "description") or None,
        tags=tuple(words(wanted, "tags")),
        params=mapping(wanted, "params"),
        user=text(wanted, "user", 200) or None,
        source="sent to the server",
    )
    labels = {name: str(value) for name, value in mapping(wanted, "labels").items()}
    created_at = moment(wanted, "created_at")
    run = outside.create(here, about, labels, created_at, run_id=run_id, patience_s=PATIENCE_S)
    here.wake()
    return Answer(run_row(run), 201)


@router.post("/runs/{run_id}/finish", dependencies=WRITING)
def finish_run(run_id: str, body: JsonBody, here: Here) -> Answer:
    """Say how a run ended that somebody else executed. The first word counts."""
    wanted = json_object(body)
    status = text(wanted, "status", 20) or "succeeded"
    if status not in ENDS:
        raise Refusal(400, f"a run ends as one of {', '.join(ENDS)}, not `{status}`")
    run = outside.check(here.find(run_id))
    at = moment(wanted, "at")
    return Answer(run_row(outside.finish(here, run, status, text(wanted, "reason", 1000), at)))


@router.post("/runs/{run_id}/beat", dependencies=WRITING)
def beat(run_id: str, here: Here) -> Answer:
    """A sign of life of a run that somebody else executes."""
    run = outside.check(here.find(run_id))
    outside.beat(here.home, run)
    stop = here.home.run(run.id).stop_reason()
    return Answer({"status": run.status, "stop": stop})


@router.patch("/runs/{run_id}", dependencies=WRITING)
def change_run(run_id: str, body: JsonBody, here: Here) -> Answer:
    """Give a run another name, description or tags. It is written into the run's folder, too."""
    wanted = json_object(body)
    unknown = set(wanted) - {"name", "description", "tags"}
    if unknown:
        raise Refusal(400, f"`{min(unknown)[:100]}` of a run cannot be changed", "name, description and tags can")
    run = here.find(run_id)
    with here.desks.of(run.id) as desk:
        told = {name: text(wanted, name, 500 if name == "name" else LONGEST_TEXT) for name in wanted if name != "tags"}
        events: list[dict[str, Any]] = [{"kind": "describe", **told}] if told else []
        if "tags" in wanted:
            events.append({"kind": "tags", "set": words(wanted, "tags")})
        desk.events(outside.place(here, run), *events)
        here.store.update(
            run.id,
            name=told.get("name", ...),
            description=told.get("description", ...),
            tags=words(wanted, "tags") if "tags" in wanted else ...,
        )
    return Answer(run_row(here.find(run_id)))


def text(wanted: Mapping[str, Any], name: str, longest: int = LONGEST_TEXT) -> str:
    """Raises Refusal for anything but a text; nothing is an empty one."""
    found = wanted.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > longest:
        raise Refusal(400, f"`{name}` is a text of up to {longest:,} characters")
    return found


def words(wanted: Mapping[str, Any], name: str) -> list[str]:
    found = wanted.get(name) or []
    if not isinstance(found, list) or len(found) > MOST_ENTRIES or not all(isinstance(word, str) for word in found):
        raise Refusal(400, f"`{name}` is a list of texts")
    return [word[:500] for word in dict.fromkeys(found)]


def mapping(wanted: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = wanted.get(name) or {}
    if not isinstance(found, dict) or len(found) > MOST_ENTRIES:
        raise Refusal(400, f"`{name}` is an object of up to {MOST_ENTRIES:,} entries")
    return found


def moment(wanted: Mapping[str, Any], name: str) -> float | None:
    """Seconds since the epoch, of this and the last century."""
    found = wanted.get(name)
    if found is None:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or not 0 <= found < 4e9:
        raise Refusal(400, f"`{name}` is a time in seconds since 1970")
    return float(found)
