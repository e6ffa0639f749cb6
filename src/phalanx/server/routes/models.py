"""/api/v1/models: the model registry, read-only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from phalanx.registry.candidates import candidates
from phalanx.server.auth.identities import Role
from phalanx.server.auth.model_visibility import PROJECTS, ModelVisibility
from phalanx.server.context import Caller, Here
from phalanx.server.http.pagination import MOST, Limit, Offset
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.models import CandidatePage, ModelPage, ModelWithVersions
from phalanx.store.model_index import Model, ModelEvent, ModelVersion

router = APIRouter(prefix="/api/v1/models", tags=["models"])


@router.get("", response_model=ModelPage)
def list_models(
    here: Here,
    caller: Caller,
    text: Annotated[str, Query(max_length=500, description="substring of the name")] = "",
    limit: Limit = 100,
    offset: Offset = 0,
) -> JsonResponse:
    """A page of the models by name, with its newest version and its aliases."""
    index = ModelVisibility(here.store, caller.projects(Role.VIEWER))
    found = index.models(text, limit, offset)
    return JsonResponse({"count": index.count(text), "models": [_model_row(model) for model in found]})


@router.get("/-/candidates", response_model=CandidatePage)
def list_candidates(
    here: Here,
    caller: Caller,
    run: Annotated[str | None, Query(max_length=100, description="only those of this run, by id")] = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> JsonResponse:
    """A page of the outputs of the newest runs that look like models and are not registered."""
    found = candidates(here.store, caller.projects(Role.VIEWER), MOST, run)
    rows = [one.as_json() for one in found[offset : offset + limit]]
    return JsonResponse({"count": len(found), "candidates": rows})


@router.get("/{name:path}", response_model=ModelWithVersions)
def show_model(name: str, here: Here, caller: Caller, *, limit: Limit = 1000, offset: Offset = 0) -> JsonResponse:
    """A model with a page of its versions, newest first, and its history: the newest 10,000 events, oldest first."""
    index = ModelVisibility(here.store, caller.projects(Role.VIEWER))
    model = index.model(name)
    if model is None:
        raise RequestError(404, f"there is no model {name[:100]!r}", "GET /api/v1/models lists all models")
    versions = index.versions(name)
    return JsonResponse(
        {
            **_model_row(model),
            "count": len(versions),
            "versions": [_row(version) for version in versions[offset : offset + limit]],
            "events": [_row(event) for event in index.events(name)[-MOST:]],
        }
    )


def _row(record: Model | ModelVersion | ModelEvent) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in record._asdict().items()
    }


def _model_row(model: Model) -> dict[str, Any]:
    return {**_row(model), "labels": {name: text for name, text in model.labels.items() if name != PROJECTS}}
