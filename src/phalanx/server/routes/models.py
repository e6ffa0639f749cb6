"""/api/v1/models: the model registry, read-only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from phalanx.registry.candidates import candidates
from phalanx.server.auth.identities import Role
from phalanx.server.auth.model_visibility import PROJECTS, ModelVisibility
from phalanx.server.context import Caller, Here
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.store.model_index import Model, ModelEvent, ModelVersion

router = APIRouter(prefix="/api/v1/models", tags=["models"])


@router.get("")
def list_models(
    here: Here,
    caller: Caller,
    text: Annotated[str, Query(max_length=500, description="substring of the name")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> JsonResponse:
    """Every model by name, with its newest version and its aliases."""
    found = ModelVisibility(here.store, caller.projects(Role.VIEWER)).models(text, limit, offset)
    return JsonResponse({"models": [_model_row(model) for model in found]})


@router.get("/-/candidates")
def list_candidates(
    here: Here,
    caller: Caller,
    run: Annotated[str | None, Query(max_length=100, description="only those of this run, by id")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> JsonResponse:
    """Outputs of the newest runs that look like models and are not registered."""
    found = candidates(here.store, caller.projects(Role.VIEWER), limit, run)
    return JsonResponse({"candidates": [one.as_json() for one in found]})


@router.get("/{name:path}")
def show_model(name: str, here: Here, caller: Caller) -> JsonResponse:
    """A model with all its versions, and its history."""
    index = ModelVisibility(here.store, caller.projects(Role.VIEWER))
    model = index.model(name)
    if model is None:
        raise RequestError(404, f"there is no model {name[:100]!r}", "GET /api/v1/models lists all models")
    versions = [_row(version) for version in index.versions(name)]
    return JsonResponse(
        {**_model_row(model), "versions": versions, "events": [_row(row) for row in index.events(name)]}
    )


def _row(record: Model | ModelVersion | ModelEvent) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in record._asdict().items()
    }


def _model_row(model: Model) -> dict[str, Any]:
    return {**_row(model), "labels": {name: text for name, text in model.labels.items() if name != PROJECTS}}
