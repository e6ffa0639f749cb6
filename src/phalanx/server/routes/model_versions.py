"""/api/v1/models/{name}/…: aliases of a model, and the runs that use it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathPart

from phalanx.errors import CallError
from phalanx.registry.registry import Registry
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.auth.model_visibility import ModelVisibility
from phalanx.server.context import Caller, Context, Here, require_role
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.model_changes import AliasChange, ChangedAliases, ModelUses
from phalanx.store.model_index import Model, ModelVersion

MOST_USES = 200

Name = Annotated[str, PathPart(max_length=200)]

router = APIRouter(prefix="/api/v1/models/{name}", tags=["models"], responses=refusals(404, 409))


@router.put("/aliases/{alias}", response_model=ChangedAliases)
def set_alias(
    name: Name, alias: Name, body: Annotated[AliasChange, json_body(AliasChange)], here: Here, caller: Caller
) -> JsonResponse:
    """Point an alias at a version, for example to promote it. Editors of all projects that the model belongs to."""
    _own(here, caller, name)
    _version(here, caller, name, body.version)
    return _changed(
        here, caller, name, lambda models: models.alias(name, alias, body.version, body.reason, caller.name)
    )


@router.delete("/aliases/{alias}", response_model=ChangedAliases)
def remove_alias(name: Name, alias: Name, here: Here, caller: Caller) -> JsonResponse:
    """Remove an alias. The version that it points at is kept."""
    _own(here, caller, name)
    return _changed(here, caller, name, lambda models: models.unalias(name, alias, user=caller.name))


def _changed(here: Context, caller: Identity, name: str, change: Any) -> JsonResponse:
    try:
        change(Registry(here.home, here.store))
    except CallError as fault:
        raise RequestError(409, str(fault)) from None
    return JsonResponse({"name": name, "aliases": dict(_model(here, caller, name).aliases)})


@router.get("/uses", response_model=ModelUses)
def show_uses(name: Name, here: Here, caller: Caller) -> JsonResponse:
    """The runs with a param that names a version of the model: `NAME/3`, `NAME@alias` or `models:/NAME/3`."""
    model, visible = _model(here, caller, name), caller.projects(Role.VIEWER)
    index = ModelVisibility(here.store, visible)
    named = {f"{name}/{version.number}": version.number for version in index.versions(name)}
    named |= {f"{name}@{alias}": number for alias, number in model.aliases.items()}
    named |= {f"models:/{text}": number for text, number in list(named.items())}
    uses = []
    for run_id, param, text in index.index.runs_with_params(named, MOST_USES):
        with suppress(CallError):
            run = here.store.find(run_id)
            if visible is None or run.project in visible:
                row = {"version": named[text], "param": param, "value": text}
                uses.append({"run": run.id, "name": run.name, "status": run.status, "project": run.project, **row})
    return JsonResponse({"uses": uses})


def _model(here: Context, caller: Identity, name: str) -> Model:
    found = ModelVisibility(here.store, caller.projects(Role.VIEWER)).model(name)
    if found is None:
        raise RequestError(404, f"there is no model {name[:100]!r}", "GET /api/v1/models lists all models")
    return found


def _version(here: Context, caller: Identity, name: str, number: int) -> ModelVersion:
    found = ModelVisibility(here.store, caller.projects(Role.VIEWER)).version(name, number)
    if found is None:
        raise RequestError(404, f"there is no version {number} of model {name[:100]!r}")
    return found


def _own(here: Context, caller: Identity, name: str) -> None:
    """Raises RequestError unless the caller edits every project that the model belongs to."""
    model = _model(here, caller, name)
    for project in ModelVisibility(here.store, None).owners(model):
        if project is not None:
            require_role(caller, project, Role.EDITOR)
        elif not caller.has(Role.EDITOR):
            raise RequestError(403, f"`{caller.name}` may not change this model", "ask for the role `editor` on `*`")
