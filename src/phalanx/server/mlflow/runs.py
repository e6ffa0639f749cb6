"""Calls about runs: create, update, end, search."""

from __future__ import annotations

from typing import Any

from phalanx.naming import PARENT
from phalanx.server import external_lifecycle
from phalanx.server.labels import DELETED
from phalanx.server.mlflow import replica_runs
from phalanx.server.mlflow.calls import Call, call, next_token, now_ms, page
from phalanx.server.mlflow.errors import MlflowError, invalid
from phalanx.server.mlflow.experiments import asked_for, by_id, own, parts, table, view_type
from phalanx.server.mlflow.filters import conditions, sortings
from phalanx.server.mlflow.run_names import generated_name
from phalanx.server.mlflow.run_search import search as find_runs
from phalanx.server.mlflow.run_writes import check_tags, note_labels
from phalanx.server.mlflow.statuses import BY_NUMBER, ENDS, OURS
from phalanx.server.mlflow.views import NAME, NOTE, USER, info_row, run_row
from phalanx.store import Run
from phalanx.tracking import external_folder
from phalanx.tracking.external_folder import BACKEND

MOST_RUNS = 50_000
PATIENCE_S = 86_400.0  # seconds; MLflow's clients give no sign of life besides what they log
LONGEST_NAME = 500


@call("POST", "runs/create")
def create(call: Call) -> dict[str, Any]:
    tags = check_tags({one.text("key"): one.text("value", needed=False) for one in parts(call, "tags")})
    if call.address is not None:
        known = replica_runs.taken(call, tags)
        if known is not None:
            return {"run": run_row(call.here, known)}
    return {"run": run_row(call.here, make(call, tags))}


def make(call: Call, tags: dict[str, str]) -> Run:
    """Create a run that the caller executes; for a replica, a child of its run."""
    mine = own(call)
    experiment = mine or by_id(call) if call.fields.get("experiment_id") else table(call).of_project("default")
    if mine is not None and call.address is not None:
        tags = {**tags, PARENT: call.own_run(call.address.run_id).id}
    else:
        call.check_edits(experiment.project)
    if experiment.is_deleted:
        raise MlflowError(f"The experiment {experiment.id} must be in the 'active' state. It is deleted.")
    started = call.integer("start_time", 0)
    about = external_folder.Description(
        project=(mine or experiment).project,
        source="started by an MLflow client",
        name=call.name("run_name", LONGEST_NAME, needed=False) or tags.get(NAME, "")[:LONGEST_NAME] or generated_name(),
        description=tags.get(NOTE) or None,
        user=_user(call, tags.get(USER) or call.name("user_id", 200, needed=False) or None),
    )
    labels = {key: value for key, value in tags.items() if key not in (NAME, NOTE, USER)}
    created_at = started / 1000 if 0 < started < 4_000_000_000_000 else None
    return external_lifecycle.create(call.here, about, labels, created_at, patience_s=PATIENCE_S)


def _user(call: Call, wanted: str | None) -> str | None:
    """A run creates others for its own user."""
    own_run = call.identity.run_id
    return call.identity.user_of(wanted) if own_run is None else call.run(own_run).user


@call("GET", "runs/get", reads=True)
def get(call: Call) -> dict[str, Any]:
    return {"run": run_row(call.here, call.run())}


@call("POST", "runs/update")
def update(call: Call) -> dict[str, Any]:
    """Change a name or a status. For a run that Phalanx started, the scheduler detects the end."""
    run = call.own_run()
    status = status_of(call)
    name = call.name("run_name", LONGEST_NAME, needed=False)
    if name and name != run.name:
        with call.here.run_writers.of(run.id):
            note_labels(call, run, {NAME: name})
        run = call.run(run.id)
    if status is not None:
        run = change_status(call, run, status)
    return {"run_info": info_row(call.here, run, call.here.store.labels(run.id))}


def status_of(call: Call) -> str | None:
    found = call.fields.get("status")
    if found in (None, ""):
        return None
    status = BY_NUMBER.get(found) if isinstance(found, int) else str(found)
    if status not in OURS:
        raise invalid("status", found, f"expected one of {sorted(OURS)}")
    return status


def change_status(call: Call, run: Run, status: str) -> Run:
    replica_runs.remember(call, run, is_over=status in ENDS)
    if run.backend != BACKEND:
        return run
    if status in ENDS:
        ended = call.integer("end_time", 0)
        at = ended / 1000 if 0 < ended < 4_000_000_000_000 else None
        return external_lifecycle.finish(call.here, run, ENDS[status], f"its MLflow client reported {status}", at)
    if run.is_done:
        with call.here.run_writers.of(run.id):
            return external_lifecycle.reopen(call.here, call.run(run.id))
    return run


@call("POST", "runs/delete")
def delete(call: Call) -> dict[str, Any]:
    """Hide the run from MLflow's clients. `phalanx rm` removes it. A run may not do this to itself."""
    run = call.run()
    call.check_edits(run.project)
    with call.here.run_writers.of(run.id):
        note_labels(call, run, {DELETED: str(now_ms())})
    return {}


@call("POST", "runs/restore")
def restore(call: Call) -> dict[str, Any]:
    run = call.run()
    call.check_edits(run.project)
    with call.here.run_writers.of(run.id):
        note_labels(call, run, {DELETED: None})
    return {}


@call("POST", "runs/search", reads=True)
def search(call: Call) -> dict[str, Any]:
    most, offset = page(call, MOST_RUNS, 1000)
    wanted = conditions(call.text("filter", needed=False))
    order = sortings(call.texts("order_by"))
    searched = asked_for(call)
    stage = view_type(call, "run_view_type")
    runs = find_runs(call.here.store, searched, wanted, order, limit=most + 1, offset=offset, stage=stage)
    more = {"next_page_token": next_token(offset + most)} if len(runs) > most else {}
    return {"runs": [run_row(call.here, run) for run in runs[:most]], **more}
