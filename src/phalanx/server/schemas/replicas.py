"""The replicas of a run: progress, inputs and resources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.schemas.base import Json, ResponseModel, Seconds, Time


class TopologyReplica(ResponseModel):
    """A replica. Progress is null for one that logged no step."""

    name: str
    role: str
    index: int
    rank: int
    host: str | None
    status: str
    reason: str
    cause: str | None
    code: int | None
    signal: int | None
    started_at: Time | None
    finished_at: Time | None
    step: int | None
    step_at: Seconds | None
    behind: Annotated[int | None, Field(description="steps behind the leading replica")]
    lag: Annotated[Literal[0, 1, 2, 3] | None, Field(description="0: none, 3: far behind")]


class FirstFailureRow(ResponseModel):
    replica: str
    rank: int | None
    host: str | None
    why: str
    advice: str | None
    lines: list[str]
    at: Time | None


class RunTopology(ResponseModel):
    attempt: int
    attempts: list[int]
    front: int | None
    straggler: str | None
    first_failure: FirstFailureRow | None
    replicas: list[TopologyReplica]


class ReplicaInputs(ResponseModel):
    """Values that only the machine knows are in angle brackets, and secret ones are hidden."""

    argv: list[str]
    variables: dict[str, str]
    folder: str | None


class ResourceUseRow(ResponseModel):
    resource: str
    unit: str
    requested: float | None
    limit: float | None
    mean: float | None
    p95: float | None
    peak: float | None
    idle_hours: float | None
    advice: float | None


class RoleUse(ResponseModel):
    role: str
    names: str
    count: int
    resources: list[ResourceUseRow]


class SizingRow(ResponseModel):
    asked: float | None
    used: float | None
    idle_hours: float | None
    advised: float | None


class CoreSizing(SizingRow):
    mean: float | None


class GpuSizing(SizingRow):
    use: dict[str, Json] | None


class RoleAdviceRow(ResponseModel):
    role: str
    indices: list[int]
    cores: CoreSizing
    memory_mib: SizingRow
    gpus: GpuSizing
    seconds: float | None
    remarks: list[str]


class AdviceRow(ResponseModel):
    """As `phalanx advise --json` prints it for a run."""

    caveats: list[str]
    roles: list[RoleAdviceRow]
    time_s: SizingRow
    idle_hours: dict[str, float]
    environment: Json


class ResourceUse(ResponseModel):
    roles: list[RoleUse]
    sentences: list[str]
    advice: AdviceRow


class GpuUseOverTime(ResponseModel):
    name: str
    util: list[float | None]
    memory_mib: list[float | None]


class UseOverTime(ResponseModel):
    """Columns: one entry per time."""

    times: list[Seconds]
    cpu: list[float | None]
    memory_mib: list[float | None]
    gpus: list[GpuUseOverTime]
