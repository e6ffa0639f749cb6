"""Runs as agents record them, made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx import plan, spec
from phalanx.ends import Cause, End
from phalanx.insight.advice import RecordedRun, ReplicaKey
from phalanx.insight.usage import GpuUsage, ReplicaUsage
from phalanx.plan.document import document as encoded
from phalanx.spec.yaml_writer import modern_document
from phalanx.spool import Writer
from phalanx.stored_plan import StoredPlan, decode_plan

BEGAN = 1_000_000.0


def use(**fields: Any) -> ReplicaUsage:
    """A replica that finished after ten minutes: a core, 100 MiB."""
    usual: dict[str, Any] = {
        "seconds": 600.0, "held_s": 600.0, "cpu_s": 600.0, "cores_mean": 1.0, "cores_p95": 1.0, "memory_mib": 100.0,
        "memory_mean_mib": 80.0, "gpu": None, "causes": (Cause.FINISHED,), "message": "finished", "attempts": 1,
        "looks": 120,
    }  # fmt: skip
    return ReplicaUsage(**{**usual, **fields})


def gpu(**fields: Any) -> GpuUsage:
    """One that was busy."""
    usual: dict[str, Any] = {
        "gpus": 1, "active": 1, "mean_percent": 90.0, "busiest_percent": 100.0, "memory_mib": 60_000.0,
        "total_mib": 81_920.0, "looks": 100,
    }  # fmt: skip
    return GpuUsage(**{**usual, **fields})


def file(environment: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A file in its modern form."""
    written = {"version": 1, "kind": "experiment", "environment": environment, "run": {"cmd": "true"}, **more}
    return modern_document(spec.load([("file", json.dumps(written).encode())]))


def plan_json(document: Mapping[str, Any]) -> str:
    """The plan.json of a run of the file."""
    return json.dumps(encoded(plan.make(spec.load([("file", json.dumps(document).encode())]), "run")))


def planned(document: Mapping[str, Any]) -> StoredPlan:
    return decode_plan(json.loads(plan_json(document)))


def seen(document: Mapping[str, Any], uses: Mapping[ReplicaKey, ReplicaUsage], **fields: Any) -> RecordedRun:
    usual: dict[str, Any] = {"plan": planned(document), "status": "succeeded", "is_batch": False, "given": {}}
    return RecordedRun(**{**usual, "uses": uses, **fields})


def notes(*looks: tuple[float, float, float], gpus: list[dict[str, float]] | None = None) -> list[dict[str, Any]]:
    """An agent's notes: seconds since the start, CPU seconds, MiB."""
    rows: list[dict[str, Any]] = [{"at": BEGAN, "start": 4711}, {"at": BEGAN + 0.1, "log": 3}]
    for seconds, cpu_s, mib in looks:
        row: dict[str, Any] = {"at": BEGAN + seconds, "use": {"cpu_s": cpu_s, "memory_mib": mib, "threads": 1}}
        rows.append(row | ({"gpus": gpus} if gpus is not None else {}))
    return rows


def end(seconds: float, cause: Cause = Cause.FINISHED, **peak: float) -> End:
    return End(cause, None, None, f"said {cause}", started_at=BEGAN, ended_at=BEGAN + seconds, peak=peak)


def write_attempt(run_folder: Path, name: str, rows: list[dict[str, Any]], ended: End | None, number: int = 1) -> Path:
    folder = run_folder / "replicas" / name / f"attempt-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / "spool")
    for row in rows:
        writer.append_json(row)
    writer.close()
    if ended is not None:
        (folder / "end.json").write_text(json.dumps(ended.to_json()))
    return folder
