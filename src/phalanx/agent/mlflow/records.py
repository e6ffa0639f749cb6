"""What MLflow's clients in a replica have logged: records of its spool, files of the run, and what is remembered to
answer questions. Standard library only, Python 3.8+."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from phalanx import run_paths
from phalanx.naming import has_control_characters
from phalanx.spool import MOMENT, NAME_NUMBER, NAMES, POINTS, VALUE, PointWriter, Reader, Writer

FILE = "mlflow-agent"  # base name of its files in the attempt's folder
LONGEST_KEY, LONGEST_TEXT = 250, 100_000
HIDDEN = "phalanx.mlflow."  # labels with this prefix are not shown to MLflow's clients
RUN_NAME = "mlflow.runName"
NEEDS_SERVER = "without a Phalanx server a run knows only itself: `phalanx serve` answers this"


class MlflowRefusal(Exception):
    """An answer other than success, in MLflow's words. The message is for the user."""

    def __init__(self, message: str, code: str = "INVALID_PARAMETER_VALUE", status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


def missing(what: str) -> MlflowRefusal:
    return MlflowRefusal(f"{what} not found", "RESOURCE_DOES_NOT_EXIST", 404)


class LoggedRun:
    """What a client knows as a run: the run itself, or one within it, whose names have a prefix."""

    def __init__(self, run_id: str, name: str, prefix: str, user: str) -> None:
        self.id, self.name, self.prefix, self.user = run_id, name, prefix, user
        self.status = "RUNNING"
        self.started, self.ended = now_ms(), 0
        self.metrics: dict[str, dict[str, Any]] = {}  # the last of each
        self.params: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def info(self) -> dict[str, Any]:
        return {
            "run_id": self.id,
            "run_uuid": self.id,
            "run_name": self.name,
            "experiment_id": "0",
            "user_id": self.user,
            "status": self.status,
            "start_time": self.started,
            **({"end_time": self.ended} if self.ended else {}),
            "artifact_uri": f"mlflow-artifacts:/{self.id}/artifacts",
            "lifecycle_stage": "active",
        }

    def row(self) -> dict[str, Any]:
        tags = {RUN_NAME: self.name, "mlflow.user": self.user, **self.tags}
        data = {"metrics": list(self.metrics.values()), "params": pairs(self.params), "tags": pairs(tags)}
        inputs = {"dataset_inputs": self.inputs, "model_inputs": []}
        return {"info": self.info(), "data": data, "inputs": inputs, "outputs": {"model_outputs": self.outputs}}


class RunRecords:
    """`folder` is that of the replica's attempt, `environment` that of its command."""

    def __init__(self, folder: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.run_folder = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
        self.project = environment.get("PHALANX_PROJECT", "default")
        run_id, user = environment.get("PHALANX_RUN_ID", ""), environment.get("USER", "")
        self.own = LoggedRun(run_id, environment.get("PHALANX_RUN_NAME", run_id), "", user)
        self.runs = {run_id: self.own}
        self._points: PointWriter | None = None
        self._events: Writer | None = None
        try:
            given = json.loads(environment.get("PHALANX_PARAMS", "{}"))
            self.own.params = {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
            }
        except (ValueError, AttributeError):
            pass  # they are only shown

    # writing -----------------------------------------------------------------------------------------------------

    def note(self, *events: Mapping[str, Any]) -> None:
        """A full disk costs records, not the training."""
        try:
            if self._events is None:
                self._events = Writer(os.path.join(self.folder, f"{FILE}.events"))
            for event in events:
                self._events.append_json({"at": round(time.time(), 3), **event})
        except OSError as fault:
            print(f"phalanx: MLflow's records cannot be written: {fault}", file=sys.stderr, flush=True)

    def add_point(self, step: int, at: float, name: str, value: float) -> None:
        try:
            if self._points is None:
                self._points = PointWriter(os.path.join(self.folder, f"{FILE}.points"))
            self._points.add(step, at, {name: value})
        except OSError as fault:
            print(f"phalanx: MLflow's metrics cannot be written: {fault}", file=sys.stderr, flush=True)

    # files -------------------------------------------------------------------------------------------------------

    def file(self, path: str) -> str:
        """The file of the run's folder that an artifact's path means. Raises MlflowRefusal if it leaves the folder."""
        key, _, rest = path.strip("/").partition("/")
        run = self.runs.get(key)
        steps = rest.split("/")
        top = steps.pop(0)
        if run is None or top not in (run_paths.ARTIFACTS, run_paths.MODELS):
            raise missing(f"The file {path[:200]!r}")
        root = os.path.join(self.run_folder, top)
        inside = [*run.prefix.split("/"), *steps] if top == run_paths.ARTIFACTS else steps
        if any(step in (".", "..") or "\0" in step for step in inside):
            raise MlflowRefusal(f"the path {path[:200]!r} leaves the folder of the run")
        found = os.path.join(root, *filter(None, inside))
        if not f"{os.path.realpath(found)}{os.sep}".startswith(f"{os.path.realpath(root)}{os.sep}"):
            raise MlflowRefusal(f"the path {path[:200]!r} leads out of the folder of the run")
        return found

    def entries(self, folder: str) -> list[dict[str, Any]]:
        try:
            found = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        shown = [entry for entry in found if not entry.name.startswith(".")]
        return [
            {"path": entry.name, "is_dir": True}
            if entry.is_dir()
            else {"path": entry.name, "is_dir": False, "file_size": entry.stat().st_size}
            for entry in shown
        ]

    def keep_file(self, path: str, size: int) -> None:
        """Record a file that was received. A logged model is recorded as a whole."""
        inside = os.path.relpath(self.file(path), self.run_folder)
        if inside.startswith(f"{run_paths.ARTIFACTS}/"):
            name = inside.partition("/")[2]
            self.note({"kind": "artifact", "path": inside, "name": name, "type": "file", "size": size})

    def history(self, run: LoggedRun, key: str) -> list[dict[str, Any]]:
        """All points of a metric, as they are in the file."""
        names: dict[int, str] = {}
        found = []
        for record in Reader(os.path.join(self.folder, f"{FILE}.points")).poll():
            if record.kind == NAMES:
                names[NAME_NUMBER.unpack_from(record.payload)[0]] = record.payload[NAME_NUMBER.size :].decode()
            elif record.kind == POINTS:
                step, at = MOMENT.unpack_from(record.payload)
                number, value = VALUE.unpack_from(record.payload, MOMENT.size)
                if names.get(number) == run.prefix + key:
                    found.append({"key": key, "value": json_number(value), "timestamp": round(at * 1000), "step": step})
        return found


def now_ms() -> int:
    return round(time.time() * 1000)


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def checked_name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise MlflowRefusal("a name is missing")
    if len(value) > LONGEST_KEY:
        raise MlflowRefusal(f"the name {value[:50]!r}… has more than {LONGEST_KEY} characters")
    if has_control_characters(value):
        raise MlflowRefusal(f"the name {value[:50]!r} has line breaks or other control characters")
    return value


def texts_by_key(rows: Any) -> dict[str, str]:
    """The keys and values of params or tags."""
    return {checked_name(row.get("key")): str(row.get("value") or "")[:LONGEST_TEXT] for row in rows or []}


def metric_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    step, at = int(fields.get("step") or 0), int(fields.get("timestamp") or 0)
    if abs(step) >= 2**63:
        raise MlflowRefusal(f"the step {step} is too large")
    value = float(fields["value"])
    return {"key": checked_name(fields.get("key")), "value": json_number(value), "timestamp": at, "step": step}


def json_number(value: float) -> Any:
    """A number as protobuf's JSON has it: only finite ones are JSON."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
