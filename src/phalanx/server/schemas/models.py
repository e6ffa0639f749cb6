"""The model registry."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.schemas.base import Json, Number, Page, ResponseModel, Time


class _ModelFields(ResponseModel):
    name: str
    description: str
    labels: dict[str, str]
    created_at: Time
    updated_at: Time
    latest: Annotated[int | None, Field(description="the highest number of a version")]
    aliases: dict[str, int]


class ModelRow(_ModelFields):
    versions: Annotated[int, Field(description="how many versions it has")]


class ModelPage(Page):
    models: list[ModelRow]


class VersionRow(ResponseModel):
    model: str
    number: int
    run_id: str | None
    source: str
    user: str
    digest: Annotated[str | None, Field(description="null until its files are read")]
    size: int | None
    files: Annotated[int | None, Field(description="null if only its source is known")]
    created_at: Time
    updated_at: Time
    metrics: dict[str, Number]
    lineage: dict[str, Json]
    labels: dict[str, str]
    description: str
    aliases: list[str]


class ModelEventRow(ResponseModel):
    number: int
    at: Time
    user: str
    kind: str
    model: str
    version: int | None
    reason: str
    data: dict[str, Json]


class ModelWithVersions(_ModelFields):
    count: Annotated[int, Field(description="how many versions there are in all, on all pages")]
    versions: list[VersionRow]
    events: list[ModelEventRow]


class CandidateRow(ResponseModel):
    """An output of a run that looks like a model and is not registered."""

    run_id: str
    run_name: str | None
    project: str
    path: str
    size: int
    at: Time


class CandidatePage(Page):
    candidates: list[CandidateRow]
