"""The calls of MLflow's clients in a replica whose run has no Phalanx server: what they log becomes records and files.

The first run that a client starts is the run itself. Later and nested ones have no run of their own here: their metrics
and params are those of the run, with the name of the inner run in front. Questions are answered from what this replica
has logged. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import read_json, write_atomic
from phalanx.locks import locked
from phalanx.spool import MOMENT, NAME_NUMBER, NAMES, POINTS, VALUE, PointWriter, Reader, Writer

FILE = "mlflow-agent"  # base name of its files in the attempt's folder
LONGEST_KEY, LONGEST_TEXT = 250, 100_000
MOST_INNER = 10_000  # runs within the run
HIDDEN = "phalanx.mlflow."  # labels with this prefix are not shown to MLflow's clients
RUN_NAME, PARENT = "mlflow.runName", "mlflow.parentRunId"
PENDING, READY, FAILED = "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"
MODEL_STATUSES = {1: PENDING, 2: READY, 3: FAILED}
ENDS = ("FINISHED", "FAILED", "KILLED")
RUN_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
NEEDS_SERVER = "without a Phalanx server a run knows only itself: `phalanx serve` answers this"


class MlflowRefusal(Exception):
    """An answer other than success, in MLflow's words. The message is for the user."""

    def __init__(self, message: str, code: str = "INVALID_PARAMETER_VALUE", status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


def _missing(what: str) -> MlflowRefusal:
    return MlflowRefusal(f"{what} not found", "RESOURCE_DOES_NOT_EXIST", 404)


class LoggedRun:
    """What a client knows as a run: the run itself, or one within it, whose names have a prefix."""

    def __init__(self, run_id: str, name: str, prefix: str, user: str) -> None:
        self.id, self.name, self.prefix, self.user = run_id, name, prefix, user
        self.status = "RUNNING"
        self.started, self.ended = _now_ms(), 0
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
        data = {"metrics": list(self.metrics.values()), "params": _pairs(self.params), "tags": _pairs(tags)}
        inputs = {"dataset_inputs": self.inputs, "model_inputs": []}
        return {"info": self.info(), "data": data, "inputs": inputs, "outputs": {"model_outputs": self.outputs}}


class MlflowCalls:
    """`folder` is that of the replica's attempt, `environment` that of its command."""

    def __init__(self, folder: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.run_folder = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
        self.project = environment.get("PHALANX_PROJECT", "default")
        run_id, user = environment.get("PHALANX_RUN_ID", ""), environment.get("USER", "")
        self.own = LoggedRun(run_id, environment.get("PHALANX_RUN_NAME", run_id), "", user)
        self.runs = {run_id: self.own}
        self.is_taken = False  # a client has started and ended the run
        self.models: dict[str, dict[str, Any]] = {}  # logged models, by id
        self.versions: dict[str, list[dict[str, Any]]] = {}  # of registered models
        self._points: PointWriter | None = None
        self._events: Writer | None = None
        try:
            given = json.loads(environment.get("PHALANX_PARAMS", "{}"))
            self.own.params = {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
            }
        except (ValueError, AttributeError):
            pass  # they are only shown

    def answer(self, method: str, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Raises MlflowRefusal, and the errors of malformed fields."""
        steps = path.strip("/").split("/")
        if steps[0] == "logged-models" and len(steps) > 1 and steps[1] != "search":
            return self._of_model(method, steps[1], steps[2:], fields)
        call = _CALLS.get(path.strip("/"))
        if call is None:
            raise MlflowRefusal(f"`{path[:200]}`: {NEEDS_SERVER}", "ENDPOINT_NOT_FOUND", 404)
        return call(self, fields)

    # writing -----------------------------------------------------------------------------------------------------

    def _note(self, *events: Mapping[str, Any]) -> None:
        """A full disk costs records, not the training."""
        try:
            if self._events is None:
                self._events = Writer(os.path.join(self.folder, f"{FILE}.events"))
            for event in events:
                self._events.append_json({"at": round(time.time(), 3), **event})
        except OSError as fault:
            print(f"phalanx: MLflow's records cannot be written: {fault}", file=sys.stderr, flush=True)

    def _add_point(self, step: int, at: float, name: str, value: float) -> None:
        try:
            if self._points is None:
                self._points = PointWriter(os.path.join(self.folder, f"{FILE}.points"))
            self._points.add(step, at, {name: value})
        except OSError as fault:
            print(f"phalanx: MLflow's metrics cannot be written: {fault}", file=sys.stderr, flush=True)

    def _log_metrics(self, run: LoggedRun, metrics: list[dict[str, Any]]) -> None:
        for row, fields in [(_metric(fields), fields) for fields in metrics]:  # checked before anything is written
            value = float(row["value"])
            self._add_point(row["step"], row["timestamp"] / 1000, run.prefix + row["key"], value)
            last = run.metrics.get(row["key"])
            if last is None or (row["step"], row["timestamp"]) >= (last["step"], last["timestamp"]):
                run.metrics[row["key"]] = row
            model = self.models.get(str(fields.get("model_id") or ""))
            if model is not None:
                about = {key: fields[key] for key in ("dataset_name", "dataset_digest") if fields.get(key)}
                kept = {**row, "model_id": model["model_id"], "run_id": run.id, **about}
                model["metrics"] = [one for one in model["metrics"] if one["key"] != row["key"]] + [kept]
                self._save_models()

    def _log_params(self, run: LoggedRun, params: dict[str, str]) -> None:
        fresh = {key: value for key, value in params.items() if run.params.get(key) != value}
        if fresh:
            run.params.update(fresh)
            self._note({"kind": "params", "values": {run.prefix + key: value for key, value in fresh.items()}})

    def _log_tags(self, run: LoggedRun, tags: dict[str, str | None]) -> None:
        for key, value in tags.items():
            if value is None:
                run.tags.pop(key, None)
            else:
                run.tags[key] = value
        own = {key: value for key, value in tags.items() if key not in (RUN_NAME, "mlflow.note.content", "mlflow.user")}
        events: list[dict[str, Any]] = []
        if own:
            events.append({"kind": "labels", "values": {run.prefix + key: value for key, value in own.items()}})
        if tags.get("mlflow.note.content") and not run.prefix:
            events.append({"kind": "describe", "description": tags["mlflow.note.content"]})
        self._note(*events)

    # runs --------------------------------------------------------------------------------------------------------

    def _run(self, fields: Mapping[str, Any]) -> LoggedRun:
        key = str(fields.get("run_id") or fields.get("run_uuid") or "")
        run = self.runs.get(key)
        if run is None:
            raise _missing(f"Run with id={key[:100]}")
        return run

    def create_run(self, fields: dict[str, Any]) -> dict[str, Any]:
        tags = _texts(fields.get("tags"))
        if not self.is_taken and PARENT not in tags:
            self._log_tags(self.own, dict(tags))
            return {"run": self.own.row()}
        if len(self.runs) > MOST_INNER:
            raise MlflowRefusal(f"more than {MOST_INNER} runs within a run: {NEEDS_SERVER}")
        number = len(self.runs) + 1
        name = _key(fields.get("run_name") or tags.get(RUN_NAME) or f"run-{number}")
        taken = {run.prefix for run in self.runs.values()}
        shown = name if f"{name}/" not in taken else f"{name}-{number}"
        run = LoggedRun(f"{self.own.id}.{number}", shown, f"{shown}/", self.own.user)
        self.runs[run.id] = run
        self._log_tags(run, dict(tags))
        return {"run": run.row()}

    def get_run(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"run": self._run(fields).row()}

    def update_run(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The end of a run is the end of its processes: what a client says of it only decides what its next run is."""
        run, status = self._run(fields), fields.get("status")
        if status:
            run.status = RUN_STATUSES[status] if isinstance(status, int) else str(status)
            run.ended = int(fields.get("end_time") or 0) if run.status in ENDS else 0
            if run is self.own:
                self.is_taken = run.status in ENDS
        name = fields.get("run_name")
        if name and name != run.name:
            run.name = str(name)[:LONGEST_KEY]
            if run is self.own:
                self._note({"kind": "describe", "name": run.name})
        return {"run_info": run.info()}

    def search_runs(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("filter"):
            raise MlflowRefusal(f"a search with a filter: {NEEDS_SERVER}", "NOT_IMPLEMENTED", 501)
        return {"runs": [run.row() for run in self.runs.values()]}

    def log_metric(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._log_metrics(self._run(fields), [fields])
        return {}

    def log_param(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._log_params(self._run(fields), _texts([fields]))
        return {}

    def log_batch(self, fields: dict[str, Any]) -> dict[str, Any]:
        run = self._run(fields)
        params, tags = _texts(fields.get("params")), _texts(fields.get("tags"))
        self._log_metrics(run, fields.get("metrics") or [])
        self._log_params(run, params)
        self._log_tags(run, dict(tags))
        return {}

    def set_tag(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._log_tags(self._run(fields), dict(_texts([fields])))
        return {}

    def delete_tag(self, fields: dict[str, Any]) -> dict[str, Any]:
        run, key = self._run(fields), str(fields.get("key"))
        if key not in run.tags:
            raise _missing(f"A tag with name {key[:100]} of run {run.id}")
        self._log_tags(run, {key: None})
        return {}

    def log_inputs(self, fields: dict[str, Any]) -> dict[str, Any]:
        run = self._run(fields)
        for given in fields.get("datasets") or []:
            dataset = given["dataset"]
            name, digest = str(dataset["name"]), str(dataset["digest"])
            run.inputs.append({"dataset": dataset, "tags": given.get("tags") or []})
            about = {"name": f"{run.prefix}{name} ({digest})", "digest": digest, "info": {"mlflow": run.inputs[-1]}}
            self._note({"kind": "dataset", **about})
        return {}

    def log_outputs(self, fields: dict[str, Any]) -> dict[str, Any]:
        run = self._run(fields)
        run.outputs += [one for one in fields.get("models") or [] if one not in run.outputs]
        self._note({"kind": "labels", "values": {f"{HIDDEN}outputs": json.dumps(run.outputs)}})
        return {}

    def log_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The description that clients before 3.0 send of a model that they logged as an artifact."""
        run, key = self._run(fields), "mlflow.log-model.history"
        known = json.loads(run.tags.get(key, "[]"))
        self._log_tags(run, {key: json.dumps([*known, json.loads(fields["model_json"])])[:LONGEST_TEXT]})
        return {}

    def metric_history(self, fields: dict[str, Any]) -> dict[str, Any]:
        run, key = self._run(fields), str(fields.get("metric_key"))
        names: dict[int, str] = {}
        found = []
        for record in Reader(os.path.join(self.folder, f"{FILE}.points")).poll():
            if record.kind == NAMES:
                names[NAME_NUMBER.unpack_from(record.payload)[0]] = record.payload[NAME_NUMBER.size :].decode()
            elif record.kind == POINTS:
                step, at = MOMENT.unpack_from(record.payload)
                number, value = VALUE.unpack_from(record.payload, MOMENT.size)
                if names.get(number) == run.prefix + key:
                    found.append({"key": key, "value": _number(value), "timestamp": round(at * 1000), "step": step})
        return {"metrics": found}

    # experiments -------------------------------------------------------------------------------------------------

    def experiment(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"experiment": self._experiment()}

    def _experiment(self) -> dict[str, Any]:
        """The project of the run, whatever the code calls it."""
        return {
            "experiment_id": "0",
            "name": self.project,
            "artifact_location": f"mlflow-artifacts:/{self.own.id}",
            "lifecycle_stage": "active",
            "creation_time": self.own.started,
            "last_update_time": self.own.started,
            "tags": [],
        }

    def create_experiment(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"experiment_id": "0"}

    def experiments(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"experiments": [self._experiment()]}

    def nothing(self, _: dict[str, Any]) -> dict[str, Any]:
        """Accepted, and not kept: about an experiment, or a registered model."""
        return {}

    # files -------------------------------------------------------------------------------------------------------

    def file(self, path: str) -> str:
        """The file of the run's folder that an artifact's path means. Raises MlflowRefusal if it leaves the folder."""
        key, _, rest = path.strip("/").partition("/")
        run = self.runs.get(key)
        steps = rest.split("/")
        top = steps.pop(0)
        if run is None or top not in (run_paths.ARTIFACTS, run_paths.MODELS):
            raise _missing(f"The file {path[:200]!r}")
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
            self._note({"kind": "artifact", "path": inside, "name": name, "type": "file", "size": size})

    # logged models, of MLflow 3 ------------------------------------------------------------------------------------

    def create_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = _key(fields.get("name") or f"model-{os.urandom(4).hex()}")
        source = str(fields.get("source_run_id") or "")
        run = self.runs.get(source, self.own)
        model_id = f"m-{self.own.id}-{os.urandom(8).hex()}"
        folder = f"{re.sub(r'[^A-Za-z0-9_-]+', '-', name)[:60]}/{model_id}"
        now = _now_ms()
        self.models[model_id] = {
            "model_id": model_id,
            "run_id": self.own.id,
            "source_run_id": run.id if source else "",
            "name": name,
            "folder": folder,
            "artifact_uri": f"mlflow-artifacts:/{self.own.id}/models/{folder}",
            "status": PENDING,
            "model_type": str(fields.get("model_type") or ""),
            "created": now,
            "updated": now,
            "params": _texts(fields.get("params")),
            "tags": _texts(fields.get("tags")),
            "metrics": [],
        }
        if len(self.models) == 1:
            self._note({"kind": "labels", "values": {f"{HIDDEN}logged_models": "yes"}})
        self._save_models()
        return self._model_row(model_id)

    def _save_models(self) -> None:
        """The same file as the server writes. Other replicas write it too."""
        path = os.path.join(self.run_folder, run_paths.LOGGED_MODELS)
        try:
            with locked(f"{path}.lock"):
                known = (read_json(path) or {}).get("models", {})
                data = {"version": 1, "models": {**known, **self.models}}
                write_atomic(path, json.dumps(data, indent=1).encode(), sync=False)
        except OSError as fault:
            print(f"phalanx: a logged model cannot be recorded: {fault}", file=sys.stderr, flush=True)

    def _model_row(self, model_id: str) -> dict[str, Any]:
        model = self.models[model_id]
        info = {
            "experiment_id": "0",
            "creation_timestamp_ms": model["created"],
            "last_updated_timestamp_ms": model["updated"],
            "tags": _pairs(model["tags"]),
            "registrations": [],
            **{
                key: model[key] for key in ("model_id", "name", "artifact_uri", "status", "model_type", "source_run_id")
            },
        }
        return {"model": {"info": info, "data": {"params": _pairs(model["params"]), "metrics": model["metrics"]}}}

    def _of_model(self, method: str, model_id: str, rest: list[str], fields: dict[str, Any]) -> dict[str, Any]:
        model = self.models.get(model_id)
        if model is None:
            raise _missing(f"Logged model with ID {model_id[:100]}")
        if rest[:1] == ["artifacts"]:
            below = str(fields.get("artifact_directory_path") or "")
            root = f"{self.own.id}/{run_paths.MODELS}/{model['folder']}"
            files = self.entries(self.file(f"{root}/{below}"))
            shown = [{**row, "path": f"{below}/{row['path']}" if below else row["path"]} for row in files]
            return {"root_uri": model["artifact_uri"], "files": shown}
        if method == "GET":
            return self._model_row(model_id)
        if rest[:1] == ["tags"] and method == "DELETE":
            model["tags"].pop(rest[1], None)
        elif rest[:1] in (["tags"], ["params"]):
            model[rest[0]].update(_texts(fields.get(rest[0])))
        elif method == "DELETE":
            model["deleted"] = True
        else:
            given = fields.get("status")
            model["status"] = MODEL_STATUSES[given] if isinstance(given, int) else str(given)
            if model["status"] == READY:
                self._keep_model(model)
        model["updated"] = _now_ms()
        self._save_models()
        return self._model_row(model_id)

    def _keep_model(self, model: Mapping[str, Any]) -> None:
        """The run lists a model as one artifact, however many files it has."""
        path = f"{run_paths.MODELS}/{model['folder']}"
        walked = os.walk(os.path.join(self.run_folder, path))
        size = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in walked for name in names)
        self._note({"kind": "artifact", "path": path, "name": model["name"], "type": "model", "size": size})

    def search_models(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("filter") or fields.get("datasets"):
            raise MlflowRefusal(f"a search with a filter: {NEEDS_SERVER}", "NOT_IMPLEMENTED", 501)
        kept = [key for key, model in self.models.items() if not model.get("deleted")]
        return {"models": [self._model_row(key)["model"] for key in reversed(kept)]}

    # the registry ------------------------------------------------------------------------------------------------

    def register_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = _key(fields.get("name"))
        if name in self.versions:
            raise MlflowRefusal(f"Registered Model (name={name}) already exists.", "RESOURCE_ALREADY_EXISTS")
        self.versions[name] = []
        return {"registered_model": self._registered(name)}

    def _registered(self, name: str) -> dict[str, Any]:
        if name not in self.versions:
            raise _missing(f"Registered Model with name={name[:100]}")
        now = self.own.started
        about = {"name": name, "creation_timestamp": now, "last_updated_timestamp": now, "tags": [], "aliases": []}
        return {**about, "latest_versions": self.versions[name][-1:]}

    def get_registered(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"registered_model": self._registered(str(fields.get("name")))}

    def create_version(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The registry of the home makes the version when it reads the record: its number may differ from this one,
        which counts only what this replica has registered."""
        name, source = _key(fields.get("name")), str(fields.get("source") or "")
        model = self.models.get(str(fields.get("model_id") or "") or source.rpartition("/")[2])
        if model is not None:
            path = f"{run_paths.MODELS}/{model['folder']}"
        else:
            match = re.match(r"mlflow-artifacts:/(?:/[^/]*/)?([^/]+/.+)|runs:/([^/]+)/(.+)", source)
            if match is None:
                raise MlflowRefusal(f"the source {source[:200]!r} is not in this run: {NEEDS_SERVER}")
            found = match[1] or f"{match[2]}/{run_paths.ARTIFACTS}/{match[3]}"
            path = os.path.relpath(self.file(found), self.run_folder)
        labels = {**_texts(fields.get("tags")), **({"mlflow.modelId": model["model_id"]} if model else {})}
        about = {"name": name, "description": str(fields.get("description") or ""), "labels": labels}
        self._note({"kind": "model", "path": path, **about})
        known = self.versions.setdefault(name, [])
        now = _now_ms()
        version = {
            "name": name,
            "version": str(len(known) + 1),
            "creation_timestamp": now,
            "last_updated_timestamp": now,
            "current_stage": "None",
            "description": about["description"],
            "source": source,
            "run_id": self.own.id,
            "status": "READY",
            "model_id": model["model_id"] if model else "",
        }
        known.append(version)
        return {"model_version": version}

    def get_version(self, fields: dict[str, Any]) -> dict[str, Any]:
        for version in self.versions.get(str(fields.get("name")), []):
            if version["version"] == str(fields.get("version")):
                return {"model_version": version, "artifact_uri": version["source"]}
        raise _missing("That model version")

    def search_versions(self, fields: dict[str, Any]) -> dict[str, Any]:
        match = re.match(r"\s*name\s*=\s*'([^']*)'\s*\Z", str(fields.get("filter") or ""))
        if match is None:
            raise MlflowRefusal(f"this search: {NEEDS_SERVER}", "NOT_IMPLEMENTED", 501)
        return {"model_versions": self.versions.get(match[1], [])}


def _now_ms() -> int:
    return round(time.time() * 1000)


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _key(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise MlflowRefusal("a name is missing")
    if len(value) > LONGEST_KEY:
        raise MlflowRefusal(f"the name {value[:50]!r}… has more than {LONGEST_KEY} characters")
    return value


def _texts(rows: Any) -> dict[str, str]:
    """The keys and values of params or tags."""
    return {_key(row.get("key")): str(row.get("value") or "")[:LONGEST_TEXT] for row in rows or []}


def _metric(fields: Mapping[str, Any]) -> dict[str, Any]:
    step, at = int(fields.get("step") or 0), int(fields.get("timestamp") or 0)
    if abs(step) >= 2**63:
        raise MlflowRefusal(f"the step {step} is too large")
    value = float(fields["value"])
    return {"key": _key(fields.get("key")), "value": _number(value), "timestamp": at, "step": step}


def _number(value: float) -> Any:
    """A number as protobuf's JSON has it: only finite ones are JSON."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_CALLS: dict[str, Callable[[MlflowCalls, dict[str, Any]], dict[str, Any]]] = {
    "experiments/get": MlflowCalls.experiment,
    "experiments/get-by-name": MlflowCalls.experiment,
    "experiments/create": MlflowCalls.create_experiment,
    "experiments/search": MlflowCalls.experiments,
    "experiments/set-experiment-tag": MlflowCalls.nothing,
    "runs/create": MlflowCalls.create_run,
    "runs/get": MlflowCalls.get_run,
    "runs/update": MlflowCalls.update_run,
    "runs/search": MlflowCalls.search_runs,
    "runs/log-metric": MlflowCalls.log_metric,
    "runs/log-parameter": MlflowCalls.log_param,
    "runs/log-batch": MlflowCalls.log_batch,
    "runs/set-tag": MlflowCalls.set_tag,
    "runs/delete-tag": MlflowCalls.delete_tag,
    "runs/log-inputs": MlflowCalls.log_inputs,
    "runs/outputs": MlflowCalls.log_outputs,
    "runs/log-model": MlflowCalls.log_model,
    "metrics/get-history": MlflowCalls.metric_history,
    "logged-models": MlflowCalls.create_model,
    "logged-models/search": MlflowCalls.search_models,
    "registered-models/create": MlflowCalls.register_model,
    "registered-models/get": MlflowCalls.get_registered,
    "registered-models/set-tag": MlflowCalls.nothing,
    "registered-models/update": MlflowCalls.get_registered,
    "model-versions/create": MlflowCalls.create_version,
    "model-versions/get": MlflowCalls.get_version,
    "model-versions/get-download-uri": MlflowCalls.get_version,
    "model-versions/search": MlflowCalls.search_versions,
}
