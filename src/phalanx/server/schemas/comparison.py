"""The differences between runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.schemas.base import Json, ResponseModel
from phalanx.server.schemas.runs import RunRow


class ComparedValue(ResponseModel):
    group: Literal["params", "metrics", "spec", "code", "environment"]
    name: str
    values: Annotated[list[Json], Field(description="in the order of `runs`; null where a run has none")]
    differs: bool


class RunComparison(ResponseModel):
    runs: list[RunRow]
    rows: list[ComparedValue]
