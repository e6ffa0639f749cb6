"""Models that MLflow's clients log and register. Standard library only, Python 3.8+."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from phalanx import run_paths
from phalanx.agent.mlflow.records import (
    HIDDEN,
    NEEDS_SERVER,
    LoggedRun,
    MlflowRefusal,
    RunRecords,
    checked_name,
    missing,
    now_ms,
    pairs,
    texts_by_key,
)
from phalanx.atomic_files import read_json, write_atomic
from phalanx.locks import locked

PENDING, READY, FAILED = "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"
MODEL_STATUSES = {1: PENDING, 2: READY, 3: FAILED}


class MlflowModels:
    """The logged models of this replica, and what it has registered."""

    def __init__(self, records: RunRecords) -> None:
        self.records = records
        self.models: dict[str, dict[str, Any]] = {}  # logged models, by id
        self.versions: dict[str, list[dict[str, Any]]] = {}  # of registered models

    def log_metric(self, run: LoggedRun, row: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        """A metric that was logged for a model as well as for the run."""
        model = self.models.get(str(fields.get("model_id") or ""))
        if model is not None:
            about = {name: fields[name] for name in ("dataset_name", "dataset_digest") if fields.get(name)}
            kept = {**row, "model_id": model["model_id"], "run_id": run.id, **about}
            model["metrics"] = [one for one in model["metrics"] if one["key"] != row["key"]] + [kept]
            self._save_models()

    # logged models, of MLflow 3 ------------------------------------------------------------------------------------

    def create_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = checked_name(fields.get("name") or f"model-{os.urandom(4).hex()}")
        source = str(fields.get("source_run_id") or "")
        run = self.records.runs.get(source, self.records.own)
        model_id = f"m-{self.records.own.id}-{os.urandom(8).hex()}"
        folder = f"{re.sub(r'[^A-Za-z0-9_-]+', '-', name)[:60]}/{model_id}"
        now = now_ms()
        self.models[model_id] = {
            "model_id": model_id,
            "run_id": self.records.own.id,
            "source_run_id": run.id if source else "",
            "name": name,
            "folder": folder,
            "artifact_uri": f"mlflow-artifacts:/{self.records.own.id}/models/{folder}",
            "status": PENDING,
            "model_type": str(fields.get("model_type") or ""),
            "created": now,
            "updated": now,
            "params": texts_by_key(fields.get("params")),
            "tags": texts_by_key(fields.get("tags")),
            "metrics": [],
        }
        if len(self.models) == 1:
            self.records.note({"kind": "labels", "values": {f"{HIDDEN}logged_models": "yes"}})
        self._save_models()
        return self._model_row(model_id)

    def _save_models(self) -> None:
        """The same file as the server writes. Other replicas write it too."""
        path = os.path.join(self.records.run_folder, run_paths.LOGGED_MODELS)
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
            "tags": pairs(model["tags"]),
            "registrations": [],
            **{
                key: model[key] for key in ("model_id", "name", "artifact_uri", "status", "model_type", "source_run_id")
            },
        }
        return {"model": {"info": info, "data": {"params": pairs(model["params"]), "metrics": model["metrics"]}}}

    def of_model(self, method: str, model_id: str, rest: list[str], fields: dict[str, Any]) -> dict[str, Any]:
        model = self.models.get(model_id)
        if model is None:
            raise missing(f"Logged model with ID {model_id[:100]}")
        if rest[:1] == ["artifacts"]:
            below = str(fields.get("artifact_directory_path") or "")
            root = f"{self.records.own.id}/{run_paths.MODELS}/{model['folder']}"
            files = self.records.entries(self.records.file(f"{root}/{below}"))
            shown = [{**row, "path": f"{below}/{row['path']}" if below else row["path"]} for row in files]
            return {"root_uri": model["artifact_uri"], "files": shown}
        if method == "GET":
            return self._model_row(model_id)
        if rest[:1] == ["tags"] and method == "DELETE":
            model["tags"].pop(rest[1], None)
        elif rest[:1] in (["tags"], ["params"]):
            model[rest[0]].update(texts_by_key(fields.get(rest[0])))
        elif method == "DELETE":
            model["deleted"] = True
        else:
            given = fields.get("status")
            model["status"] = MODEL_STATUSES[given] if isinstance(given, int) else str(given)
            if model["status"] == READY:
                self._keep_model(model)
        model["updated"] = now_ms()
        self._save_models()
        return self._model_row(model_id)

    def _keep_model(self, model: Mapping[str, Any]) -> None:
        """The run lists a model as one artifact, however many files it has."""
        path = f"{run_paths.MODELS}/{model['folder']}"
        walked = os.walk(os.path.join(self.records.run_folder, path))
        size = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in walked for name in names)
        self.records.note({"kind": "artifact", "path": path, "name": model["name"], "type": "model", "size": size})

    def search_models(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("filter") or fields.get("datasets"):
            raise MlflowRefusal(f"a search with a filter: {NEEDS_SERVER}", "NOT_IMPLEMENTED", 501)
        kept = [key for key, model in self.models.items() if not model.get("deleted")]
        return {"models": [self._model_row(key)["model"] for key in reversed(kept)]}

    # the registry ------------------------------------------------------------------------------------------------

    def register_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = checked_name(fields.get("name"))
        if name in self.versions:
            raise MlflowRefusal(f"Registered Model (name={name}) already exists.", "RESOURCE_ALREADY_EXISTS")
        self.versions[name] = []
        return {"registered_model": self._registered(name)}

    def _registered(self, name: str) -> dict[str, Any]:
        if name not in self.versions:
            raise missing(f"Registered Model with name={name[:100]}")
        now = self.records.own.started
        about = {"name": name, "creation_timestamp": now, "last_updated_timestamp": now, "tags": [], "aliases": []}
        return {**about, "latest_versions": self.versions[name][-1:]}

    def get_registered(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"registered_model": self._registered(str(fields.get("name")))}

    def create_version(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The registry of the home makes the version when it reads the record: its number may differ from this one,
        which counts only what this replica has registered."""
        name, source = checked_name(fields.get("name")), str(fields.get("source") or "")
        model = self.models.get(str(fields.get("model_id") or "") or source.rpartition("/")[2])
        if model is not None:
            path = f"{run_paths.MODELS}/{model['folder']}"
        else:
            match = re.match(r"mlflow-artifacts:/(?:/[^/]*/)?([^/]+/.+)|runs:/([^/]+)/(.+)", source)
            if match is None:
                raise MlflowRefusal(f"the source {source[:200]!r} is not in this run: {NEEDS_SERVER}")
            found = match[1] or f"{match[2]}/{run_paths.ARTIFACTS}/{match[3]}"
            path = os.path.relpath(self.records.file(found), self.records.run_folder)
        labels = {**texts_by_key(fields.get("tags")), **({"mlflow.modelId": model["model_id"]} if model else {})}
        about = {"name": name, "description": str(fields.get("description") or ""), "labels": labels}
        self.records.note({"kind": "model", "path": path, **about})
        known = self.versions.setdefault(name, [])
        now = now_ms()
        version = {
            "name": name,
            "version": str(len(known) + 1),
            "creation_timestamp": now,
            "last_updated_timestamp": now,
            "current_stage": "None",
            "description": about["description"],
            "source": source,
            "run_id": self.records.own.id,
            "status": "READY",
            "model_id": model["model_id"] if model else "",
        }
        known.append(version)
        return {"model_version": version}

    def get_version(self, fields: dict[str, Any]) -> dict[str, Any]:
        for version in self.versions.get(str(fields.get("name")), []):
            if version["version"] == str(fields.get("version")):
                return {"model_version": version, "artifact_uri": version["source"]}
        raise missing("That model version")

    def search_versions(self, fields: dict[str, Any]) -> dict[str, Any]:
        match = re.match(r"\s*name\s*=\s*'([^']*)'\s*\Z", str(fields.get("filter") or ""))
        if match is None:
            raise MlflowRefusal(f"this search: {NEEDS_SERVER}", "NOT_IMPLEMENTED", 501)
        return {"model_versions": self.versions.get(match[1], [])}
