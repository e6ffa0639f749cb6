"""Calls about experiments."""

from __future__ import annotations

from typing import Any

from phalanx.server.mlflow.calls import Call, call, next_token, now_ms, page
from phalanx.server.mlflow.errors import MlflowError, not_found, truncated
from phalanx.server.mlflow.experiment_table import (
    ExperimentTable,
    MlflowExperiment,
    check_name,
    experiment_row,
    no_experiment,
)
from phalanx.server.mlflow.filters import conditions, holds, sortings

STAGES = {1: "ACTIVE_ONLY", 2: "DELETED_ONLY", 3: "ALL"}
MOST_LISTED = 50_000
LONGEST_TAG, LONGEST_TAG_VALUE = 250, 20_000


def table(call: Call) -> ExperimentTable:
    return call.here.experiments


def projects(call: Call) -> list[str]:
    """All experiments, including those the caller may not see: names are unique across all."""
    return [project for project, _ in call.here.store.projects()]


def own(call: Call) -> MlflowExperiment | None:
    """The only experiment that a replica sees, regardless of its request: the run's own project."""
    return None if call.address is None else table(call).of_project(call.run(call.address.run_id).project)


def by_id(call: Call) -> MlflowExperiment:
    return own(call) or seen(call, call.text("experiment_id", 100), projects(call))


def seen(call: Call, key: str, known: list[str]) -> MlflowExperiment:
    """The experiment with an id, if the caller may read it. Raises MlflowError."""
    found = table(call).of_id(key, known)
    if not call.may_see(found.project):
        raise no_experiment(key)
    return found


def asked_for(call: Call) -> list[str]:
    """The projects to search: those of the given experiments, or a replica's own."""
    mine = own(call)
    if mine is not None:
        return [mine.project]
    known = projects(call)
    return [seen(call, key, known).project for key in dict.fromkeys(call.texts("experiment_ids"))]


def changeable(call: Call) -> MlflowExperiment:
    found = by_id(call)
    call.check_edits(found.project)
    return found


@call("POST", "experiments/create")
def create(call: Call) -> dict[str, Any]:
    mine = own(call)
    if mine is not None:
        return {"experiment_id": mine.id}
    name = call.text("name")
    call.check_edits(table(call).free_project(name))
    tags = {
        one.name("key", LONGEST_TAG): one.text("value", LONGEST_TAG_VALUE, needed=False) for one in parts(call, "tags")
    }
    location = call.text("artifact_location", 2000, needed=False) or None
    made = table(call).create(name, projects(call), tags, location)
    return {"experiment_id": made.id}


def parts(call: Call, name: str) -> list[Call]:
    return [call.of(fields) for fields in call.objects(name)]


@call("GET", "experiments/get", reads=True)
def get(call: Call) -> dict[str, Any]:
    return {"experiment": experiment_row(by_id(call))}


@call("GET", "experiments/get-by-name", reads=True)
def get_by_name(call: Call) -> dict[str, Any]:
    name = call.text("experiment_name")
    found = own(call) or table(call).of_name(name, projects(call))
    if found is None or not call.may_see(found.project):
        raise not_found(f"Could not find experiment with name {truncated(name)}")
    return {"experiment": experiment_row(found)}


@call("POST", "experiments/search", reads=True)
@call("GET", "experiments/search", reads=True)
@call("GET", "experiments/list", reads=True)
def search(call: Call) -> dict[str, Any]:
    most, offset = page(call, MOST_LISTED, 1000)
    stage = view_type(call, "view_type")
    wanted = conditions(call.text("filter", needed=False))
    mine = own(call)
    sees = call.sees()
    found = [mine] if mine is not None else table(call).all(projects(call))
    found = [row for row in found if sees is None or row.project in sees]
    found = [row for row in found if stage == "ALL" or row.is_deleted == (stage == "DELETED_ONLY")]
    found = [row for row in found if all(holds(condition, _value(row, condition)) for condition in wanted)]
    for sorting in reversed(sortings(call.texts("order_by"))):
        found.sort(key=lambda row: _sort_key(row, sorting.key), reverse=sorting.downwards)
    rows = [experiment_row(row) for row in found[offset : offset + most]]
    more = {"next_page_token": next_token(offset + most)} if offset + most < len(found) else {}
    return {"experiments": rows, **more}


def view_type(call: Call, name: str) -> str:
    found = call.fields.get(name) or "ACTIVE_ONLY"
    stage = STAGES.get(int(found), "") if str(found).isdecimal() else str(found)
    if stage not in STAGES.values():
        raise MlflowError(f"Invalid {name} {truncated(found)}")
    return stage


def _value(row: MlflowExperiment, condition: Any) -> Any:
    if condition.entity == "tag":
        return row.tags.get(condition.key)
    known = {
        "name": row.name,
        "experiment_id": row.id,
        "creation_time": float(row.created),
        "last_update_time": float(row.updated),
    }
    if condition.entity != "attribute" or condition.key not in known:
        raise MlflowError(f"Invalid attribute key {truncated(condition.key)} specified. Valid keys are {sorted(known)}")
    return known[condition.key]


def _sort_key(row: MlflowExperiment, key: str) -> Any:
    known = {
        "name": row.name,
        "experiment_id": int(row.id) if row.id.isdecimal() else 0,
        "creation_time": row.created,
        "last_update_time": row.updated,
    }
    if key not in known:
        raise MlflowError(f"Invalid order_by key {truncated(key)}. Valid keys are {sorted(known)}")
    return known[key]


@call("POST", "experiments/update")
def update(call: Call) -> dict[str, Any]:
    """Rename the experiment. The project keeps its name."""
    found, name = changeable(call), call.text("new_name")
    check_name(name)
    known = table(call).of_name(name, projects(call))
    if known is not None and known.id != found.id:
        raise MlflowError(f"Experiment(name={name[:200]}) already exists.", "RESOURCE_ALREADY_EXISTS")
    table(call).put(found._replace(name=name, updated=now_ms()))
    return {}


@call("POST", "experiments/delete")
def delete(call: Call) -> dict[str, Any]:
    """Hide the experiment and its runs. Nothing is removed."""
    table(call).put(changeable(call)._replace(is_deleted=True, updated=now_ms()))
    return {}


@call("POST", "experiments/restore")
def restore(call: Call) -> dict[str, Any]:
    table(call).put(changeable(call)._replace(is_deleted=False, updated=now_ms()))
    return {}


@call("POST", "experiments/set-experiment-tag")
def set_tag(call: Call) -> dict[str, Any]:
    key, value = call.name("key", LONGEST_TAG), call.text("value", LONGEST_TAG_VALUE, needed=False)
    if own(call) is not None:
        return {}  # a run does not change its project
    with table(call).alone():
        found = changeable(call)
        table(call).put(found._replace(tags={**found.tags, key: value}, updated=now_ms()))
    return {}


@call("POST", "experiments/delete-experiment-tag")
def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("key", LONGEST_TAG)
    with table(call).alone():
        found = changeable(call)
        if key not in found.tags:
            raise not_found(f"No tag with name: {truncated(key)} in experiment with id {found.id}")
        table(call).put(found._replace(tags={k: v for k, v in found.tags.items() if k != key}, updated=now_ms()))
    return {}
