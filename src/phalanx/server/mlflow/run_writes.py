"""Writes about a run: first into its folder, then into the store. Callers must hold the run's writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.server import external_lifecycle
from phalanx.server.labels import DELETED
from phalanx.server.mlflow.calls import Call, integer, number
from phalanx.server.mlflow.errors import MlflowError, check_name, invalid, not_found, truncated
from phalanx.server.mlflow.views import NAME, NOTE, USER, param_text
from phalanx.server.run_writers import LoggedPoint, RunWriter
from phalanx.store import Run, Summary
from phalanx.store.series.strands import Point
from phalanx.store.series.summaries import merged, point_key, summary_of_point
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
    check_name(key, f"{where}key")
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
    """Write points that are not in the run yet, and its summaries. The caller must hold the run's writer."""
    if not points:
        return
    folder, store = place(call, run), call.here.store
    replica, attempt = folder.parent.name, run_paths.attempt_number(folder.name)
    if call.address is not None and replica != "master-0" and call.address.run_id == run.id:
        # lists show the first replica's values; without a master, only the scheduler knows which one that is
        writer.points(folder, points)
        return
    names = list({point.name: None for point in points})
    is_plain = attempt == 1 and _are_newest(store.summaries(run.id, names), points)
    fresh = points if is_plain else _unknown(call, run, replica, points)
    if not fresh:
        return
    with store.summarising(run.id):
        writer.points(folder, fresh)
        known = store.summaries(run.id, names)
        if is_plain and _are_newest(known, points):
            for point in points:
                grown = summary_of_point(point.step, point.at, point.value)
                known[point.name] = merged(known.get(point.name), grown)
        else:
            with call.here.charts.of(call.here.home.run(run.id).path) as series:
                exact = {name: series.summary(name, one) for name in names for one in series.replicas(name)[:1]}
            known = {name: summary for name, summary in exact.items() if summary is not None}
        store.put_summaries(run.id, known)


def _are_newest(known: Mapping[str, Summary], points: Sequence[LoggedPoint]) -> bool:
    """Whether each of the points comes after all that are known, so that it repeats none of them."""
    reached = {name: (summary.step, summary.at) for name, summary in known.items()}
    for point in points:
        before = reached.get(point.name)
        if before is not None and (None in before or (point.step, point.at) <= before):
            return False
        reached[point.name] = (point.step, point.at)
    return True


def _unknown(call: Call, run: Run, replica: str, points: Sequence[LoggedPoint]) -> list[LoggedPoint]:
    """The points that the replica has not logged yet, once each: MLflow's client sends some again with a model."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(Point(point.step, point.at, point.value, 0))
    with call.here.charts.of(call.here.home.run(run.id).path) as series:
        seen = {
            (name, point_key(*point[:3]))
            for name, given in by_name.items()
            for point in series.repeated(name, replica, given)
        }
    fresh = []
    for point in points:
        key = (point.name, point_key(point.step, point.at, point.value))
        if key not in seen:
            seen.add(key)
            fresh.append(point)
    return fresh


def params_of(calls: Sequence[Call]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in calls:
        key, value = one.name("key"), one.text("value", 10**7, needed=False)
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
        check_name(value if key in (NAME, USER) else key, key)
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
