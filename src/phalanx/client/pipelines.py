"""A pipeline and its ops for Python: `phalanx.Client().pipeline(…)` of a server, `phalanx.open().pipeline(…)`.

import phalanx

pipeline = phalanx.open().pipeline("nightly")
print(pipeline.status, pipeline.op("train").outputs)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.client.rows import record
from phalanx.client.summary_view import SummaryView
from phalanx.client.transport import Transport, joined
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.scheduler.pipelines.report import PipelineReport
    from phalanx.store import Store


class PipelineOp(NamedTuple):
    """One step of a pipeline. `status` is that of its run; `waiting` before it is decided whether it runs. `run_id` is
    its newest run or group; `runs`: all of them. `reason`: why it has this status, or for whom it waits. `outputs`: the
    values of its declared outputs; `missing`: those without a value, and why."""

    name: str
    kind: str | None
    status: str
    run_id: str | None
    runs: list[str]
    retries: int
    max_retries: int
    trigger: str
    dependencies: list[str]
    reason: str
    started_at: datetime | None
    ended_at: datetime | None
    params: Mapping[str, Any]
    outputs: Mapping[str, Any]
    missing: Mapping[str, str]
    is_reused: bool


class PipelineView(SummaryView):
    """A pipeline as it was when it was read; `refresh` reads it again. The fields of `summary` are attributes: `id`,
    `name`, `status`, `reason`, `counts`, `edges`, `concurrency`, `schedule`, `next_tick`, `ticks` and so on."""

    counts: Mapping[str, int]

    @property
    def ops(self) -> list[PipelineOp]:
        """In the order of the file."""
        return [_op_of(row) for row in self.summary["ops"]]

    def op(self, name: str) -> PipelineOp:
        """Raises CallError if there is none of that name."""
        for found in self.ops:
            if found.name == name:
                return found
        raise CallError(f"pipeline {self.id} has no op `{name}`: it has {', '.join(op.name for op in self.ops)}")

    def __repr__(self) -> str:
        return f"<pipeline {self.id}: {len(self.summary['ops'])} ops, {self.status}>"


def _op_of(row: Mapping[str, Any]) -> PipelineOp:
    times = {name: datetime.fromisoformat(row[name]) if row[name] else None for name in ("started_at", "ended_at")}
    return record(PipelineOp, row, **times)


class HomePipeline(PipelineView):
    """A pipeline of a home, for reading."""

    def __init__(self, store: Store, report: PipelineReport) -> None:
        super().__init__(report.summary())
        self._store, self._report = store, report

    def refresh(self) -> None:
        self._report.update(self._store, self._store.find(self.id))
        self.summary = self._report.summary()


class RemotePipeline(PipelineView):
    """A pipeline of a server. Every method may raise RequestRefused and ServerUnreachable."""

    def __init__(self, wire: Transport, pipeline_id: str) -> None:
        self._wire, self._path = wire, joined("pipelines", pipeline_id)
        super().__init__(wire.get(self._path))

    def refresh(self) -> None:
        self.summary = self._wire.get(self._path)
