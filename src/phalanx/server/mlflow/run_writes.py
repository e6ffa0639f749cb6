"""Writes about a run: first into its folder, then into the store. Callers must hold the run's writer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.server import external_lifecycle
from phalanx.server.labels import DELETED
from phalanx.server.mlflow.calls import Call, integer, number
from phalanx.server.mlflow.errors import MlflowError, invalid, not_found, truncated
from phalanx.server.mlflow.views import NAME, NOTE, param_text
from phalanx.server.run_writers import LoggedPoint, RunWriter
from phalanx.store import Run, Summary
from phalanx.tracking.external_folder import BACKEND

LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 8000
END_OF_TIME_MS = 250_000_000_000_000


def place(call: Call, run: Run) -> Path:
    """The attempt folder for logged data: that of the calling replica, or of the first one."""
    address = call.address
    if address is not None and address.run_id == run.id:
        found = call.here.home.run(run.id).path / run_paths.attempt_folder(address.replica, address.attempt)
        if not found.is_dir():
            raise not_found(f"Run {run.id} has no replica {address.replica} in attempt {address.attempt}")
        return found
    if run.backend != BACKEND and not run.attempt:
        raise MlflowError(f"Run {run.id} has not started yet: nothing can be logged to it")
    return external_lifecycle.place(call.here, run)


def check_live(call: Call, run: Run) -> None:
    if DELETED in call.here.store.labels(run.id):
        raise MlflowError(f"The run {run.id} must be in the 'active' state. Current state is deleted.")


def point_of(fields: Mapping[str, Any], where: str = "") -> LoggedPoint:
    """A metric's point. `where`: the place of its fields in the call."""
    for name in ("key", "value", "timestamp"):
        if fields.get(name) in (None, ""):
            raise MlflowError(f"Missing value for required parameter '{where}{name}'.")
    key = fields["key"]
    if not isinstance(key, str):
        raise invalid(f"{where}key", key, "expected a string")
    if len(key) > LONGEST_KEY:
        raise MlflowError(f"Metric name {truncated(key)} exceeds the maximum length of {LONGEST_KEY} characters")
    at = integer(fields["timestamp"], f"{where}timestamp")
    if not 0 <= at < END_OF_TIME_MS:
        raise MlflowError(
            f"Got invalid timestamp {at} for metric {truncated(key)}: expected milliseconds since the epoch"
        )
    step = integer(fields.get("step") or 0, f"{where}step")
    return LoggedPoint(key, number(fields["value"], f"{where}value"), max(step, -(2**63) + 1), at / 1000)


def write_points(call: Call, run: Run, writer: RunWriter, points: Sequence[LoggedPoint]) -> None:
    """The caller must hold the run's writer."""
    if not points:
        return
    writer.points(place(call, run), points)
    if call.address is not None and call.address.replica != "master-0" and call.address.run_id == run.id:
        return  # lists show the first replica's values; without a master, only the scheduler knows which one that is
    summaries = writer.notes.get("summaries")
    if summaries is None:
        summaries = writer.notes["summaries"] = call.here.store.summaries(run.id)
    for point in points:
        summaries[point.name] = grown(summaries.get(point.name), point)
    call.here.store.put_summaries(run.id, {name: summaries[name] for name in {point.name for point in points}})


def grown(before: Summary | None, point: LoggedPoint) -> Summary:
    """The last point has the highest step and, among those, the latest time."""
    finite = point.value if math.isfinite(point.value) else None
    if before is None:
        return Summary(point.value, finite, finite, 1, point.step, point.at)
    smallest = [value for value in (before.min, finite) if value is not None]
    largest = [value for value in (before.max, finite) if value is not None]
    after = (point.step, point.at) >= (before.step or 0, before.at or 0.0)
    last = (point.value, point.step, point.at) if after else (before.last, before.step, before.at)
    return Summary(
        last[0], min(smallest, default=None), max(largest, default=None), (before.count or 0) + 1, last[1], last[2]
    )


def params_of(calls: Sequence[Call]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in calls:
        key, value = one.text("key"), one.text("value", 10**7, needed=False)
        if len(key) > LONGEST_KEY:
            raise MlflowError(f"Param key {truncated(key)} exceeds the maximum length of {LONGEST_KEY} characters")
        if len(value) > LONGEST_PARAM:
            raise MlflowError(
                f"Param value of {truncated(key)} exceeds the maximum length of {LONGEST_PARAM} characters"
            )
        if found.setdefault(key, value) != value:
            raise MlflowError(f"Duplicate parameter keys have been submitted: {truncated(key)}")
    return found


def write_params(call: Call, run: Run, writer: RunWriter, params: Mapping[str, str]) -> None:
    """MLflow's params are immutable. Training may still correct params that came from the run's file."""
    fresh: dict[str, str] = {}
    for key, value in params.items():
        known = run.params.get(key)
        if known is not None and param_text(known) != value and call.address is None:
            raise MlflowError(
                "Changing param values is not allowed. "
                f"Param with key={truncated(key)} was already logged with value={truncated(known)} "
                f"for run ID={run.id}. "
                f"Attempted logging new value {truncated(value)}."
            )
        if known is None or param_text(known) != value:
            fresh[key] = value
    if fresh:
        writer.events(place(call, run), {"kind": "params", "values": fresh})
        call.here.store.put_params(run.id, fresh)


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    for key, value in tags.items():
        if not key or len(key) > LONGEST_KEY:
            raise MlflowError(f"Tag key {truncated(key)} must have 1 to {LONGEST_KEY} characters")
        if len(value) > LONGEST_TAG:
            raise MlflowError(f"Tag value of {truncated(key)} exceeds the maximum length of {LONGEST_TAG} characters")
    return dict(tags)


def note_labels(call: Call, run: Run, values: Mapping[str, str | None]) -> None:
    """Write labels, including those that hold the run's name and description. The caller must hold the run's writer."""
    own = {"name": values.get(NAME), "description": values.get(NOTE)}
    described = {name: text or "" for name, text in own.items() if {"name": NAME, "description": NOTE}[name] in values}
    labels = {key: value for key, value in values.items() if key not in (NAME, NOTE)}
    events: list[dict[str, Any]] = []
    if described:
        events.append({"kind": "describe", **described})
    if labels:
        events.append({"kind": "labels", "values": labels})
    folder = place(call, run) if run.attempt or run.backend == BACKEND else external_lifecycle.place(call.here, run)
    with call.here.run_writers.of(run.id) as writer:
        writer.events(folder, *events)
    if described:
        call.here.store.update(run.id, name=described.get("name", ...), description=described.get("description", ...))
    if labels:
        call.here.store.put_labels(run.id, labels)
