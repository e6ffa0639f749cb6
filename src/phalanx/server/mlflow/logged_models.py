"""Models that MLflow 3 logs: files in the run's `models` folder, described in `logged-models.json`.

An id contains the run (`m-<run>-<random>`), so no index is needed to find the rest.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.artifacts.trees import FILE, Tree
from phalanx.atomic_files import read_json, write_atomic
from phalanx.server import external_lifecycle
from phalanx.server.auth.model_visibility import ModelVisibility
from phalanx.server.http.paths import entries, steps_of
from phalanx.server.labels import HIDDEN
from phalanx.server.mlflow.artifacts import file_rows
from phalanx.server.mlflow.calls import Call, call, next_token, now_ms, page
from phalanx.server.mlflow.errors import MlflowError, not_found, truncated
from phalanx.server.mlflow.experiments import asked_for, parts, table
from phalanx.server.mlflow.filters import Condition, conditions, holds, identifier
from phalanx.server.mlflow.run_search import search as find_runs
from phalanx.server.mlflow.run_writes import check_live, note_labels, place
from phalanx.server.mlflow.runs import make
from phalanx.store import Artifact, Run

HAS_MODELS = f"{HIDDEN}logged_models"  # label of runs that have logged models
ALONE = f"{HIDDEN}model_alone"  # label of a run that was created only to hold one
PENDING, READY, FAILED = "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"
STATUSES = {1: PENDING, 2: READY, 3: FAILED}
VERSIONS = "mlflow.modelVersions"
MOST_FOUND = 10_000
Datasets = Sequence[tuple[str, str]]  # names and digests
_ID = re.compile(r"m-([a-z0-9][a-z0-9-]{3,63})-([0-9a-f]{16})\Z", re.ASCII)
_BAD_IN_NAME = re.compile(r"[/:.%\"']")


def file_of(call: Call, run_id: str) -> Path:
    return call.here.home.run(run_id).path / run_paths.LOGGED_MODELS


def read_all(path: Path) -> dict[str, dict[str, Any]]:
    found = read_json(path)
    models = found.get("models") if isinstance(found, dict) else None
    return models if isinstance(models, dict) else {}


def write(path: Path, models: Mapping[str, Mapping[str, Any]]) -> None:
    write_atomic(path, json.dumps({"version": 1, "models": models}, indent=1).encode(), sync=False)


def read(call: Call, model_id: str, *, also_deleted: bool = False) -> dict[str, Any]:
    """Raises MlflowError when it does not exist."""
    match = _ID.match(model_id)
    is_seen = match is not None and call.may_see(call.here.project_of(match[1]))
    model = read_all(file_of(call, match[1])).get(model_id) if match and is_seen else None
    if model is None or (model.get("deleted") and not also_deleted):
        raise not_found(f"Logged model with ID {truncated(model_id)} not found.")
    return model


def change(call: Call, model_id: str, **changes: Any) -> dict[str, Any]:
    run = call.own_run(read(call, model_id)["run_id"])
    with call.here.run_writers.of(run.id):
        models = read_all(file_of(call, run.id))
        models[model_id] = {**models[model_id], **changes, "updated": now_ms()}
        write(file_of(call, run.id), models)
        return models[model_id]


@call("POST", "logged-models")
def create(call: Call) -> dict[str, Any]:
    name = call.name("name", 250, needed=False) or f"model-{secrets.token_hex(4)}"
    if _BAD_IN_NAME.search(name):
        raise MlflowError(f"Invalid model name {truncated(name)}: it must not contain / : . % or quotes")
    source = call.text("source_run_id", 300, needed=False)
    run = call.own_run(source) if call.known_run(source) else _run_for(call, name)
    check_live(call, run)
    model_id = f"m-{run.id}-{secrets.token_hex(8)}"
    folder = f"{re.sub(r'[^A-Za-z0-9_-]+', '-', name)[:60]}/{model_id}"
    now = now_ms()
    model = {
        "model_id": model_id,
        "run_id": run.id,
        "source_run_id": source,
        "name": name,
        "folder": folder,
        "artifact_uri": f"mlflow-artifacts:/{run.id}/models/{folder}",
        "status": PENDING,
        "model_type": call.name("model_type", 500, needed=False),
        "created": now,
        "updated": now,
        "params": {one.name("key", 250): one.text("value", needed=False) for one in parts(call, "params")},
        "tags": {one.name("key", 250): one.text("value", needed=False) for one in parts(call, "tags")},
        "metrics": [],
    }
    with call.here.run_writers.of(run.id):
        write(file_of(call, run.id), {**read_all(file_of(call, run.id)), model_id: model})
        if HAS_MODELS not in call.here.store.labels(run.id):
            note_labels(call, run, {HAS_MODELS: "yes"})
    return {"model": row(call, model)}


def _run_for(call: Call, name: str) -> Run:
    """A model without a run gets its own run, which ends when the model is complete. A replica uses its run."""
    if call.address is not None:
        return call.own_run(call.address.run_id)
    return make(call.of({**call.fields, "run_name": name, "tags": []}), {ALONE: "yes"})


def row(call: Call, model: Mapping[str, Any]) -> dict[str, Any]:
    run = call.run(model["run_id"])
    registrations = _registrations(call, model)
    tags = model["tags"]
    if registrations:  # MLflow's clients read a model's versions from this tag
        versions = [{"name": one["name"], "version": int(one["version"])} for one in registrations]
        tags = {**tags, VERSIONS: json.dumps(versions)}
    info = {
        "model_id": model["model_id"],
        "experiment_id": table(call).of_project(run.project).id,
        "name": model["name"],
        "creation_timestamp_ms": model["created"],
        "last_updated_timestamp_ms": model["updated"],
        "artifact_uri": model["artifact_uri"],
        "status": model["status"],
        "model_type": model["model_type"],
        **({"source_run_id": model["source_run_id"]} if model["source_run_id"] else {}),
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
        "registrations": registrations,
    }
    data = {
        "params": [{"key": key, "value": value} for key, value in model["params"].items()],
        "metrics": model["metrics"],
    }
    return {"info": info, "data": data}


def _registrations(call: Call, model: Mapping[str, Any]) -> list[dict[str, str]]:
    versions = ModelVisibility(call.here.store, call.sees()).versions(run_id=model["run_id"])
    sources = (f"models/{model['folder']}", model["artifact_uri"])  # the latter without files
    made = sorted((one.created_at, one.model, one.number) for one in versions if one.source in sources)
    return [{"name": name, "version": str(number)} for _, name, number in made]


@call("GET", "logged-models/*", reads=True)
def get(call: Call) -> dict[str, Any]:
    return {"model": row(call, read(call, call.steps[0], also_deleted=call.flag("allow_deleted")))}


@call("GET", "logged-models/*/artifacts/directories", reads=True)
def list_files(call: Call) -> dict[str, Any]:
    model, path = read(call, call.steps[0]), call.text("artifact_directory_path", needed=False)
    below = "/".join(steps_of(path))
    root = call.here.home.run(model["run_id"]).path / run_paths.MODELS / model["folder"]
    return {"root_uri": model["artifact_uri"], "files": file_rows(entries(root, below), below)}


@call("PATCH", "logged-models/*")
def finalize(call: Call) -> dict[str, Any]:
    given = call.fields.get("status")
    status = STATUSES.get(given) if isinstance(given, int) else str(given)
    if status not in (READY, FAILED):
        raise MlflowError(f"Invalid model status: {truncated(given)}. Expected {READY} or {FAILED}")
    model = change(call, call.steps[0], status=status)
    run = call.run(model["run_id"])
    if status == READY:
        _keep(call, run, model)
    if ALONE in call.here.store.labels(run.id) and not run.is_done:
        external_lifecycle.finish(
            call.here, run, "succeeded" if status == READY else "failed", "its model was logged", None
        )
    return {"model": row(call, model)}


def _keep(call: Call, run: Run, model: Mapping[str, Any]) -> None:
    """The run lists the model as one artifact, however many files it has."""
    path = f"models/{model['folder']}"
    tree = Tree(call.here.home.run(run.id).path)
    size = sum(found.size for found in tree.walk(path) if found.kind == FILE)
    now = datetime.now(UTC)
    event = {"kind": "artifact", "path": path, "name": model["name"], "type": "model", "size": size}
    with call.here.run_writers.of(run.id) as writer:
        writer.events(place(call, run), {"at": now.timestamp(), **event})
        call.here.store.put_artifacts(run.id, [Artifact(run.id, path, "model", model["name"], size, None, now)])


@call("DELETE", "logged-models/*")
def delete(call: Call) -> dict[str, Any]:
    """Hide the model; its files stay with the run."""
    change(call, call.steps[0], deleted=True)
    return {}


@call("PATCH", "logged-models/*/tags")
def set_tags(call: Call) -> dict[str, Any]:
    given = {one.name("key", 250): one.text("value", needed=False) for one in parts(call, "tags")}
    with call.here.run_writers.of(read(call, call.steps[0])["run_id"]):
        model = change(call, call.steps[0], tags={**read(call, call.steps[0])["tags"], **given})
    return {"model": row(call, model)}


@call("DELETE", "logged-models/*/tags/*")
def delete_tag(call: Call) -> dict[str, Any]:
    model_id, key = call.steps
    with call.here.run_writers.of(read(call, model_id)["run_id"]):
        tags = read(call, model_id)["tags"]
        if key not in tags:
            raise not_found(f"No tag with key {truncated(key)} found for model with ID {model_id}.")
        change(call, model_id, tags={name: value for name, value in tags.items() if name != key})
    return {}


@call("POST", "logged-models/*/params")
def log_params(call: Call) -> dict[str, Any]:
    given = {one.name("key", 250): one.text("value", needed=False) for one in parts(call, "params")}
    with call.here.run_writers.of(read(call, call.steps[0])["run_id"]):
        change(call, call.steps[0], params={**read(call, call.steps[0])["params"], **given})
    return {}


# metrics ------------------------------------------------------------------------------------------------------------


def log_metrics(call: Call, run: Run, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Store the last value of each metric that was logged for a model as well as for the run. The caller must hold the
    run's writer."""
    by_model: dict[str, list[Mapping[str, Any]]] = {}
    for metric in metrics:
        model_id = metric.get("model_id")
        if isinstance(model_id, str) and model_id:
            by_model.setdefault(model_id, []).append(metric)
    for model_id, given in by_model.items():
        model = read(call, model_id)
        known = {_metric_key(one): one for one in model["metrics"]}
        for metric in given:
            kept = {
                "key": str(metric.get("key"))[:250],
                "value": metric.get("value"),
                "timestamp": metric.get("timestamp") or 0,
                "step": metric.get("step") or 0,
                "model_id": model_id,
                "run_id": run.id,
                **{name: str(metric[name])[:500] for name in ("dataset_name", "dataset_digest") if metric.get(name)},
            }
            known[_metric_key(kept)] = kept
        change(call, model_id, metrics=list(known.values()))


def _metric_key(metric: Mapping[str, Any]) -> tuple[Any, ...]:
    return metric["key"], metric.get("dataset_name"), metric.get("dataset_digest")


# searching ----------------------------------------------------------------------------------------------------------


@call("POST", "logged-models/search", reads=True)
def search(call: Call) -> dict[str, Any]:
    most, offset = page(call, MOST_FOUND, 100)
    wanted = conditions(call.text("filter", needed=False))
    datasets = [(one.text("dataset_name"), one.text("dataset_digest", needed=False)) for one in parts(call, "datasets")]
    found = [model for model in _models_of(call) if _fits(model, wanted, datasets)]
    found.sort(key=lambda model: (-model["created"], model["model_id"]))
    for order in reversed(parts(call, "order_by")):
        entity, key = identifier(order.text("field_name", 500))
        about = [(order.text("dataset_name", needed=False), order.text("dataset_digest", needed=False))]
        values = {model["model_id"]: _value(model, entity, key, about) for model in found}
        having = [model for model in found if values[model["model_id"]] is not None]
        lacking = [model for model in found if values[model["model_id"]] is None]
        having.sort(key=lambda model: values[model["model_id"]], reverse=order.fields.get("ascending") is False)
        found = having + lacking
    more = {"next_page_token": next_token(offset + most)} if offset + most < len(found) else {}
    return {"models": [row(call, model) for model in found[offset : offset + most]], **more}


def _fits(model: Mapping[str, Any], wanted: Sequence[Condition], datasets: Datasets) -> bool:
    """Conditions on metrics mean those that were measured on one of the datasets, if any are given. Without such a
    condition, the model must have any metric of them."""
    metrics = [one for one in wanted if one.entity == "metric"]
    measured = [metric for metric in model["metrics"] if _is_of(metric, datasets)]
    if datasets and not metrics and not measured:
        return False
    return all(
        any(holds(one, float(metric["value"])) for metric in measured if metric["key"] == one.key) for one in metrics
    ) and all(holds(one, _value(model, one.entity, one.key, [])) for one in wanted if one.entity != "metric")


def _models_of(call: Call) -> Iterator[dict[str, Any]]:
    has_some = Condition("tag", HAS_MODELS, "IS NOT NULL", None)
    for run in find_runs(call.here.store, asked_for(call), [has_some], [], limit=MOST_FOUND):
        yield from (model for model in read_all(file_of(call, run.id)).values() if not model.get("deleted"))


def _value(model: Mapping[str, Any], entity: str, key: str, datasets: Datasets) -> Any:
    if entity == "tag":
        return model["tags"].get(key)
    if entity == "param":
        return model["params"].get(key)
    if entity == "metric":
        return _metric(model, key, datasets)
    known = {
        "name": model["name"],
        "model_name": model["name"],
        "model_id": model["model_id"],
        "model_type": model["model_type"],
        "status": model["status"].removeprefix("LOGGED_MODEL_"),
        "source_run_id": model["source_run_id"],
        "creation_time": float(model["created"]),
        "creation_timestamp": float(model["created"]),
        "last_updated_timestamp": float(model["updated"]),
    }
    if key.removesuffix("_ms") not in known:
        raise MlflowError(f"Invalid attribute {truncated(key)} of a logged model. Valid ones are {sorted(known)}")
    return known[key.removesuffix("_ms")]


def _metric(model: Mapping[str, Any], key: str, datasets: Datasets) -> float | None:
    """The latest value of a metric."""
    fitting = [metric for metric in model["metrics"] if metric["key"] == key and _is_of(metric, datasets)]
    if not fitting:
        return None
    value = float(max(fitting, key=lambda metric: (int(metric["timestamp"]), int(metric["step"])))["value"])
    return None if math.isnan(value) else value


def _is_of(metric: Mapping[str, Any], datasets: Datasets) -> bool:
    """Whether a metric was measured on one of the datasets, of which name or digest may be missing; always without
    any."""
    about = (metric.get("dataset_name"), metric.get("dataset_digest"))
    return not datasets or any(name in ("", about[0]) and digest in ("", about[1]) for name, digest in datasets)
