"""Responses about the files of model versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.schemas.base import ResponseModel, Seconds


class VersionFile(ResponseModel):
    path: str
    kind: Literal["file", "folder", "link"]
    size: int
    at: Seconds
    digest: Annotated[str | None, Field(description="SHA-256; null until the files of the version are read")]
    target: Annotated[str | None, Field(description="of a link")]


class VersionFiles(ResponseModel):
    files: list[VersionFile]
