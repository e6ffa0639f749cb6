"""Changes of models, and the runs that use them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.http.request_models import RequestModel, Word
from phalanx.server.schemas.base import ResponseModel
from phalanx.store.statuses import Status


class AliasChange(RequestModel):
    version: Annotated[int, Field(ge=1, le=10**9)]
    reason: Annotated[Word, Field(description="recorded in the history of the model")] = ""


class ChangedAliases(ResponseModel):
    name: str
    aliases: Annotated[dict[str, int], Field(description="the version of each alias")]


class ModelUse(ResponseModel):
    """A run with a param that names a version of the model."""

    run: str
    name: str | None
    status: Status
    project: str
    version: int
    param: str
    value: str


class ModelUses(ResponseModel):
    uses: list[ModelUse]
