"""Waiting runs, and the capacity to run them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.schemas.base import Page, ResponseModel
from phalanx.server.schemas.runs import RunRow


class RequestedCapacity(ResponseModel):
    cpu: float
    memory_mib: float
    gpus: float


class QueuedRun(RunRow):
    place: Annotated[int | None, Field(description="the position in its queue; null once it has left it")]
    waits_for: str | None
    asked: RequestedCapacity


class QueuePage(Page):
    runs: list[QueuedRun]
    schedules: Annotated[bool, Field(description="whether a scheduler is active")]


class DiskSpace(ResponseModel):
    total_bytes: int
    free_bytes: int


class Machine(ResponseModel):
    host: str
    cpus: float
    memory_mib: float
    gpus: list[str]
    free: RequestedCapacity
    load: list[float]
    disk: DiskSpace
    version: str
    home: Annotated[str, Field(description="for admins only")] | None = None
