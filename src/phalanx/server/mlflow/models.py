"""Calls about registered models and their versions, over the home's own registry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.artifacts.trees import run_tree
from phalanx.registry.registry import Registry
from phalanx.server.auth.identities import Role
from phalanx.server.auth.model_visibility import PROJECTS, ModelVisibility
from phalanx.server.mlflow.artifacts import path_of, registered_uri
from phalanx.server.mlflow.calls import Call, call, next_token, page
from phalanx.server.mlflow.errors import MlflowError, not_found, truncated
from phalanx.server.mlflow.experiments import parts
from phalanx.server.mlflow.filters import Condition, conditions, holds, sortings
from phalanx.server.mlflow.logged_models import read as logged_model
from phalanx.store.model_index import Model, ModelVersion

STAGES = {stage.lower(): stage for stage in ("None", "Staging", "Production", "Archived")}
STAGE = "mlflow.stage"  # label with a version's stage
MODEL_ID = "mlflow.modelId"  # label with the logged model that a version was made from
RUN_LINK = "mlflow.runLink"
RUN_ID = "mlflow.runId"  # label with the run of a version that was made elsewhere
COPIED = "mlflow.copiedFrom"  # label with the address of the version that a version is a copy of
OWN = (STAGE, MODEL_ID, RUN_LINK, RUN_ID, COPIED, PROJECTS)
IS_PROMPT = "mlflow.prompt.is_prompt"  # clients select models without this tag with `!= 'true'`
COPY = r"models:/([^/@]+)/(\d{1,9})"
MOST_LISTED = 200_000


def registry(call: Call) -> Registry:
    """For changes. Lookups use `visible`."""
    return Registry(call.here.home, call.here.store)


def visible(call: Call) -> ModelVisibility:
    return ModelVisibility(call.here.store, call.sees())


def model_of(call: Call) -> Model:
    name = call.text("name", 300)
    found = visible(call).model(name)
    if found is None:
        raise not_found(f"Registered Model with name={truncated(name)} not found")
    return found


def version_of(call: Call) -> ModelVersion:
    model, number = model_of(call), call.text("version", 300)
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise MlflowError(f"Parameter 'version' must be an integer, got {truncated(number)}.")
    found = visible(call).version(model.name, int(number))
    if found is None:
        raise not_found(f"Model Version (name={model.name}, version={number}) not found")
    return found


def own_model(call: Call) -> Model:
    """A model that the caller may edit: requires the editor role on all projects of its versions."""
    model = model_of(call)
    call.check_edits(*visible(call).owners(model))
    return model


def own_version(call: Call) -> ModelVersion:
    version = version_of(call)
    call.check_edits(visible(call).project_of(version))
    return version


# views --------------------------------------------------------------------------------------------------------------


def model_row(call: Call, model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "creation_timestamp": round(model.created_at.timestamp() * 1000),
        "last_updated_timestamp": round(model.updated_at.timestamp() * 1000),
        "description": model.description,
        "latest_versions": [version_row(one) for one in latest(call, model.name, ())],
        "tags": tag_rows(model.labels),
        "aliases": [{"alias": alias, "version": str(number)} for alias, number in model.aliases.items()],
    }


def version_row(version: ModelVersion) -> dict[str, Any]:
    return {
        "name": version.model,
        "version": str(version.number),
        "creation_timestamp": round(version.created_at.timestamp() * 1000),
        "last_updated_timestamp": round(version.updated_at.timestamp() * 1000),
        "user_id": version.user,
        "current_stage": stage_of(version),
        "description": version.description,
        "source": source_uri(version),
        "run_id": run_id_of(version),
        "run_link": version.labels.get(RUN_LINK, ""),
        "status": "READY",
        "tags": tag_rows(version.labels),
        "aliases": list(version.aliases),
        "model_id": version.labels.get(MODEL_ID, ""),
    }


def tag_rows(labels: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in labels.items() if key not in OWN]


def stage_of(version: ModelVersion) -> str:
    return version.labels.get(STAGE, "None")


def run_id_of(version: ModelVersion) -> str:
    return version.run_id or version.labels.get(RUN_ID, "")


def source_uri(version: ModelVersion) -> str:
    if COPIED in version.labels:
        return version.labels[COPIED]
    is_url = version.files is None
    return version.source if is_url else f"mlflow-artifacts:/{version.run_id}/{version.source}"


def latest(call: Call, name: str, stages: Sequence[str]) -> list[ModelVersion]:
    """The newest version of each stage."""
    found: dict[str, ModelVersion] = {}
    for version in visible(call).versions(name):  # newest first
        found.setdefault(stage_of(version), version)
    return [version for stage, version in found.items() if not stages or stage in stages]


# models -------------------------------------------------------------------------------------------------------------


@call("POST", "registered-models/create")
def create(call: Call) -> dict[str, Any]:
    """A run's own token may do this too: training code registers what it made."""
    name = call.text("name", 300)
    if registry(call).index.model(name) is not None:
        raise MlflowError(f"Registered Model (name={name}) already exists.", "RESOURCE_ALREADY_EXISTS")
    labels = {**tags_of(call), **_whose(call)}
    if labels.get(IS_PROMPT) == "true":
        raise MlflowError("Prompts are not supported: Phalanx's registry holds models only.", "NOT_IMPLEMENTED")
    made = registry(call).create(name, call.text("description", 100_000, needed=False), labels)
    return {"registered_model": model_row(call, made)}


def _whose(call: Call) -> dict[str, str]:
    """A model without versions is visible to callers who see one of its creator's projects."""
    own = call.identity.run_id
    found = call.identity.projects(Role.EDITOR) if own is None else [call.here.project_of(own)]
    return {PROJECTS: json.dumps(sorted(filter(None, found)))} if found is not None else {}


def tags_of(call: Call) -> dict[str, str]:
    return {key_of(one): one.text("value", 100_000, needed=False) for one in parts(call, "tags")}


def key_of(call: Call) -> str:
    """Raises MlflowError for the label that stores a model's owning projects."""
    key = call.name("key", 250)
    if key == PROJECTS:
        raise MlflowError(f"the tag {PROJECTS} can be set only by the server")
    return key


@call("GET", "registered-models/get", reads=True)
def get(call: Call) -> dict[str, Any]:
    return {"registered_model": model_row(call, model_of(call))}


@call("POST", "registered-models/rename")
def rename(call: Call) -> dict[str, Any]:
    own_model(call)
    raise MlflowError(
        "a registered model cannot be renamed: register its versions under another name", "NOT_IMPLEMENTED"
    )


@call("PATCH", "registered-models/update")
def update(call: Call) -> dict[str, Any]:
    model = own_model(call)
    registry(call).describe(model.name, call.text("description", 100_000, needed=False))
    return {"registered_model": model_row(call, model_of(call))}


@call("DELETE", "registered-models/delete")
def delete(call: Call) -> dict[str, Any]:
    registry(call).delete(own_model(call).name, reason="deleted by an MLflow client", force=True)
    return {}


@call("GET", "registered-models/search", reads=True)
def search(call: Call) -> dict[str, Any]:
    most, offset = page(call, 1000, 100)
    wanted = conditions(call.text("filter", needed=False))
    found = [model for model in visible(call).models() if all(_fits(one, _model_value(model)) for one in wanted)]
    _sort(call, found, _model_value)
    more = {"next_page_token": next_token(offset + most)} if offset + most < len(found) else {}
    return {"registered_models": [model_row(call, model) for model in found[offset : offset + most]], **more}


Values = Callable[[str, str], Any]


def _model_value(model: Model) -> Values:
    known = {
        "name": model.name,
        "creation_timestamp": model.created_at.timestamp() * 1000,
        **dict.fromkeys(("last_updated_timestamp", "timestamp"), model.updated_at.timestamp() * 1000),
    }
    return _lookup(known, model.labels)


def _lookup(known: Mapping[str, Any], labels: Mapping[str, str]) -> Values:
    def value(entity: str, key: str) -> Any:
        if entity == "tag":
            return labels.get(key, "false" if key == IS_PROMPT else None)
        if entity != "attribute" or key not in known:
            raise MlflowError(f"Invalid attribute key {truncated(key)}. Valid keys are {sorted(known)}")
        return known[key]

    return value


def _fits(condition: Condition, value: Values) -> bool:
    return holds(condition, value(condition.entity, condition.key))


def _sort(call: Call, found: list[Any], values: Callable[[Any], Values]) -> None:
    for sorting in reversed(sortings(call.texts("order_by"))):
        entity, key = sorting.entity, sorting.key
        found.sort(key=lambda one: values(one)(entity, key), reverse=sorting.downwards)


@call("POST", "registered-models/get-latest-versions", reads=True)
@call("GET", "registered-models/get-latest-versions", reads=True)
def get_latest(call: Call) -> dict[str, Any]:
    stages = [canonical_stage(stage) for stage in call.texts("stages")]
    return {"model_versions": [version_row(one) for one in latest(call, model_of(call).name, stages)]}


@call("POST", "registered-models/set-tag")
def set_tag(call: Call) -> dict[str, Any]:
    registry(call).label(own_model(call).name, {key_of(call): call.text("value", 100_000, needed=False)})
    return {}


@call("DELETE", "registered-models/delete-tag")
def delete_tag(call: Call) -> dict[str, Any]:
    registry(call).label(own_model(call).name, {key_of(call): None})
    return {}


@call("POST", "registered-models/alias")
def set_alias(call: Call) -> dict[str, Any]:
    own_model(call)
    version = version_of(call)
    registry(call).alias(version.model, call.text("alias", 255), version.number, "set by an MLflow client")
    return {}


@call("DELETE", "registered-models/alias")
def delete_alias(call: Call) -> dict[str, Any]:
    model, alias = own_model(call), call.text("alias", 255)
    if alias in model.aliases:
        registry(call).unalias(model.name, alias, "removed by an MLflow client")
    return {}


@call("GET", "registered-models/alias", reads=True)
def by_alias(call: Call) -> dict[str, Any]:
    model, alias = model_of(call), call.text("alias", 255)
    number = model.aliases.get(alias)
    found = visible(call).version(model.name, number) if number is not None else None
    if found is None:
        raise MlflowError(f"Registered model alias {alias[:200]} not found.")
    return {"model_version": version_row(found)}


# versions -----------------------------------------------------------------------------------------------------------


@call("POST", "model-versions/create")
def create_version(call: Call) -> dict[str, Any]:
    model, given = model_of(call), call.text("run_id", 300, needed=False)
    source, own = _source(call, call.text("source", 5000), call.text("model_id", 300, needed=False))
    run_id = own or call.known_run(given)
    if run_id:
        call.own_run(run_id)
        call.check_edits_one(visible(call).owners(model))
    else:
        call.check_edits(None)
    labels = {**tags_of(call), **_own_labels(call), **({RUN_ID: given} if given and not run_id else {})}
    made = registry(call).register(
        model.name,
        run_id or None,
        source,
        description=call.text("description", 100_000, needed=False),
        labels=labels,
        reason="registered by an MLflow client",
        user=call.run(run_id).user if run_id else call.identity.name,
    )
    return {"model_version": version_row(made)}


def _own_labels(call: Call) -> dict[str, str]:
    given = {MODEL_ID: call.text("model_id", 300, needed=False), RUN_LINK: call.text("run_link", 2000, needed=False)}
    source = call.text("source", 5000)
    if not given[MODEL_ID] and source.startswith("models:/m-"):
        given[MODEL_ID] = source.removeprefix("models:/")
    elif re.fullmatch(COPY, source):
        given[COPIED] = source
    return {key: value for key, value in given.items() if value}


def _source(call: Call, source: str, model_id: str) -> tuple[str, str]:
    """The path in a run's folder that a source means, and the run; or an external URL without a run."""
    match = re.fullmatch(COPY, source) or re.fullmatch(r"models:/([^/@]+)()", source)
    if match and match[2]:
        version = version_of(call.of({"name": match[1], "version": match[2]}))
        return version.source, version.run_id or ""
    if match or model_id:
        model = logged_model(call, model_id or (match[1] if match else ""))
        folder = f"models/{model['folder']}"
        has_files = any(run_tree(call.here.home.run(model["run_id"]).path).walk(folder))
        return folder if has_files else model["artifact_uri"], model["run_id"]
    inside = path_of(source)
    if inside is not None:
        return inside[1], call.run(inside[0]).id
    if source.startswith("runs:/"):
        run_id, _, path = source.removeprefix("runs:/").partition("/")
        if call.known_run(run_id) or call.text("run_id", 300, needed=False) != run_id:
            return f"artifacts/{path}", call.run(run_id).id
        return source, ""  # a run of another server, which the version names, too
    if not re.match(r"[a-z][a-z0-9+.-]*://", source) or source.startswith("file:"):
        raise MlflowError(
            f"Invalid model version source {truncated(source)}: expected a run's artifacts, or the URL of a store"
        )
    return source, ""


@call("GET", "model-versions/get", reads=True)
def get_version(call: Call) -> dict[str, Any]:
    return {"model_version": version_row(version_of(call))}


@call("GET", "model-versions/get-download-uri", reads=True)
def download_uri(call: Call) -> dict[str, Any]:
    version = version_of(call)
    uri = version.source if version.files is None else registered_uri(version.model, version.number)
    return {"artifact_uri": uri}


@call("PATCH", "model-versions/update")
def update_version(call: Call) -> dict[str, Any]:
    version = own_version(call)
    registry(call).describe(version.model, call.text("description", 100_000, needed=False), version.number)
    return {"model_version": version_row(version_of(call))}


@call("DELETE", "model-versions/delete")
def delete_version(call: Call) -> dict[str, Any]:
    version = own_version(call)
    registry(call).delete(version.model, version.number, "deleted by an MLflow client", force=True)
    return {}


def canonical_stage(stage: str) -> str:
    found = STAGES.get(stage.lower())
    if found is None:
        raise MlflowError(
            f"Invalid Model Version stage: {truncated(stage)}. Value must be one of {list(STAGES.values())}."
        )
    return found


@call("POST", "model-versions/transition-stage")
def transition(call: Call) -> dict[str, Any]:
    version, stage = own_version(call), canonical_stage(call.text("stage", 50))
    if call.flag("archive_existing_versions"):
        own_model(call)
        for other in visible(call).versions(version.model):
            if other.number != version.number and stage_of(other) == stage:
                registry(call).label(other.model, {STAGE: "Archived"}, other.number)
    registry(call).label(version.model, {STAGE: stage}, version.number)
    return {"model_version": version_row(version_of(call))}


@call("GET", "model-versions/search", reads=True)
def search_versions(call: Call) -> dict[str, Any]:
    most, offset = page(call, MOST_LISTED, 10_000)
    wanted = conditions(call.text("filter", needed=False))
    name = next((one.value for one in wanted if (one.entity, one.key, one.sign) == ("attribute", "name", "=")), None)
    found = [
        version
        for version in visible(call).versions(str(name) if name is not None else None)
        if all(_fits(condition, _version_value(version)) for condition in wanted)
    ]
    found.sort(key=lambda one: (one.model, -one.number))
    if not call.texts("order_by"):
        found.sort(key=lambda one: -one.updated_at.timestamp())
    _sort(call, found, _version_value)
    more = {"next_page_token": next_token(offset + most)} if offset + most < len(found) else {}
    return {"model_versions": [version_row(version) for version in found[offset : offset + most]], **more}


def _version_value(version: ModelVersion) -> Values:
    known = {
        "name": version.model,
        "run_id": run_id_of(version),
        "source_path": source_uri(version),
        **dict.fromkeys(("version", "version_number"), float(version.number)),
        "creation_timestamp": version.created_at.timestamp() * 1000,
        "last_updated_timestamp": version.updated_at.timestamp() * 1000,
    }
    return _lookup(known, version.labels)


@call("POST", "model-versions/set-tag")
def set_version_tag(call: Call) -> dict[str, Any]:
    version = own_version(call)
    labels = {key_of(call): call.text("value", 100_000, needed=False)}
    registry(call).label(version.model, labels, version.number)
    return {}


@call("DELETE", "model-versions/delete-tag")
def delete_version_tag(call: Call) -> dict[str, Any]:
    version = own_version(call)
    registry(call).label(version.model, {key_of(call): None}, version.number)
    return {}
