"""What the retention removes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.http.request_models import RequestModel, Word
from phalanx.server.schemas.base import ResponseModel


class RemovedFileRow(ResponseModel):
    path: str
    size: int


class CleanupRow(ResponseModel):
    run: str
    name: str | None
    project: str
    why: str
    size: Annotated[int, Field(description="bytes")]
    pushed: Annotated[bool, Field(description="whether its outputs are in remote storage, too")]
    count: int
    files: Annotated[list[RemovedFileRow], Field(description="the first 1,000")]
    kept: Annotated[dict[str, str], Field(description="files that something refers to, and what")]


class RetentionPlan(ResponseModel):
    size: Annotated[int, Field(description="bytes")]
    runs: list[CleanupRow]
    protected: Annotated[dict[str, str], Field(description="runs that stay as a whole, and why")]


class RetentionResult(ResponseModel):
    freed: Annotated[int, Field(description="bytes")]
    troubles: Annotated[list[str], Field(description="runs that could not be cleaned up, and why")]


class RetentionOrder(RequestModel):
    project: Word | None = None
