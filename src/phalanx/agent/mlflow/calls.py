"""The calls of MLflow's clients in a replica whose run has no Phalanx server: what they log becomes records and files.

The first run that a client starts is the run itself. Later and nested ones have no run of their own here: their metrics
and params are those of the run, with the name of the inner run in front. Questions are answered from what this replica
has logged. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.agent.mlflow.models import MlflowModels
from phalanx.agent.mlflow.records import (
    HIDDEN,
    LONGEST_KEY,
    LONGEST_TEXT,
    NEEDS_SERVER,
    RUN_NAME,
    LoggedRun,
    MlflowRefusal,
    RunRecords,
    checked_name,
    metric_row,
    missing,
    texts_by_key,
)

MOST_INNER = 10_000  # runs within the run
PARENT = "mlflow.parentRunId"
ENDS = ("FINISHED", "FAILED", "KILLED")
RUN_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}


class MlflowCalls:
    def __init__(self, records: RunRecords) -> None:
        self.records = records
        self.models = MlflowModels(records)
        self.is_taken = False  # a client has started and ended the run

    def answer(self, method: str, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Raises MlflowRefusal, and the errors of malformed fields."""
        steps = path.strip("/").split("/")
        if steps[0] == "logged-models" and len(steps) > 1 and steps[1] != "search":
            return self.models.of_model(method, steps[1], steps[2:], fields)
        name = "/".join(steps)
        if name in _CALLS:
            return _CALLS[name](self, fields)
        if name in _MODEL_CALLS:
            return _MODEL_CALLS[name](self.models, fields)
        raise MlflowRefusal(f"`{path[:200]}`: {NEEDS_SERVER}", "ENDPOINT_NOT_FOUND", 404)

    # writing -----------------------------------------------------------------------------------------------------

    def _log_metrics(self, run: LoggedRun, metrics: list[dict[str, Any]]) -> None:
        for row, fields in [(metric_row(fields), fields) for fields in metrics]:  # checked before anything is written
            value = float(row["value"])
            self.records.add_point(row["step"], row["timestamp"] / 1000, run.prefix + row["key"], value)
            last = run.metrics.get(row["key"])
            if last is None or (row["step"], row["timestamp"]) >= (last["step"], last["timestamp"]):
                run.metrics[row["key"]] = row
            self.models.log_metric(run, row, fields)

    def _log_params(self, run: LoggedRun, params: dict[str, str]) -> None:
        fresh = {key: value for key, value in params.items() if run.params.get(key) != value}
        if fresh:
            run.params.update(fresh)
            self.records.note({"kind": "params", "values": {run.prefix + key: value for key, value in fresh.items()}})

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
        self.records.note(*events)

    # runs --------------------------------------------------------------------------------------------------------

    def _run(self, fields: Mapping[str, Any]) -> LoggedRun:
        key = str(fields.get("run_id") or fields.get("run_uuid") or "")
        run = self.records.runs.get(key)
        if run is None:
            raise missing(f"Run with id={key[:100]}")
        return run

    def create_run(self, fields: dict[str, Any]) -> dict[str, Any]:
        tags = texts_by_key(fields.get("tags"))
        if not self.is_taken and PARENT not in tags:
            self._log_tags(self.records.own, dict(tags))
            return {"run": self.records.own.row()}
        if len(self.records.runs) > MOST_INNER:
            raise MlflowRefusal(f"more than {MOST_INNER} runs within a run: {NEEDS_SERVER}")
        number = len(self.records.runs) + 1
        name = checked_name(fields.get("run_name") or tags.get(RUN_NAME) or f"run-{number}")
        taken = {run.prefix for run in self.records.runs.values()}
        shown = name if f"{name}/" not in taken else f"{name}-{number}"
        run = LoggedRun(f"{self.records.own.id}.{number}", shown, f"{shown}/", self.records.own.user)
        self.records.runs[run.id] = run
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
            if run is self.records.own:
                self.is_taken = run.status in ENDS
        name = fields.get("run_name")
        if name and name != run.name:
            run.name = checked_name(str(name)[:LONGEST_KEY])
            if run is self.records.own:
                self.records.note({"kind": "describe", "name": run.name})
        return {"run_info": run.info()}

    def search_runs(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("filter"):
            raise MlflowRefusal(f"a search with a filter: {NEEDS_SERVER}", "NOT_IMPLEMENTED", 501)
        return {"runs": [run.row() for run in self.records.runs.values()]}

    def log_metric(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._log_metrics(self._run(fields), [fields])
        return {}

    def log_param(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._log_params(self._run(fields), texts_by_key([fields]))
        return {}

    def log_batch(self, fields: dict[str, Any]) -> dict[str, Any]:
        run = self._run(fields)
        params, tags = texts_by_key(fields.get("params")), texts_by_key(fields.get("tags"))
        self._log_metrics(run, fields.get("metrics") or [])
        self._log_params(run, params)
        self._log_tags(run, dict(tags))
        return {}

    def set_tag(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._log_tags(self._run(fields), dict(texts_by_key([fields])))
        return {}

    def delete_tag(self, fields: dict[str, Any]) -> dict[str, Any]:
        run, key = self._run(fields), str(fields.get("key"))
        if key not in run.tags:
            raise missing(f"A tag with name {key[:100]} of run {run.id}")
        self._log_tags(run, {key: None})
        return {}

    def log_inputs(self, fields: dict[str, Any]) -> dict[str, Any]:
        run = self._run(fields)
        for given in fields.get("datasets") or []:
            dataset = given["dataset"]
            name, digest = str(dataset["name"]), str(dataset["digest"])
            run.inputs.append({"dataset": dataset, "tags": given.get("tags") or []})
            about = {"name": f"{run.prefix}{name} ({digest})", "digest": digest, "info": {"mlflow": run.inputs[-1]}}
            self.records.note({"kind": "dataset", **about})
        return {}

    def log_outputs(self, fields: dict[str, Any]) -> dict[str, Any]:
        run = self._run(fields)
        run.outputs += [one for one in fields.get("models") or [] if one not in run.outputs]
        self.records.note({"kind": "labels", "values": {f"{HIDDEN}outputs": json.dumps(run.outputs)}})
        return {}

    def log_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The description that clients before 3.0 send of a model that they logged as an artifact."""
        run, key = self._run(fields), "mlflow.log-model.history"
        known = json.loads(run.tags.get(key, "[]"))
        self._log_tags(run, {key: json.dumps([*known, json.loads(fields["model_json"])])[:LONGEST_TEXT]})
        return {}

    def metric_history(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"metrics": self.records.history(self._run(fields), str(fields.get("metric_key")))}

    # experiments -------------------------------------------------------------------------------------------------

    def experiment(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"experiment": self._experiment()}

    def _experiment(self) -> dict[str, Any]:
        """The project of the run. The name that the code gives is ignored."""
        return {
            "experiment_id": "0",
            "name": self.records.project,
            "artifact_location": f"mlflow-artifacts:/{self.records.own.id}",
            "lifecycle_stage": "active",
            "creation_time": self.records.own.started,
            "last_update_time": self.records.own.started,
            "tags": [],
        }

    def create_experiment(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"experiment_id": "0"}

    def experiments(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"experiments": [self._experiment()]}

    def nothing(self, _: dict[str, Any]) -> dict[str, Any]:
        """Accepted, and not kept: about an experiment, or a registered model."""
        return {}


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
}
_MODEL_CALLS: dict[str, Callable[[MlflowModels, dict[str, Any]], dict[str, Any]]] = {
    "logged-models": MlflowModels.create_model,
    "logged-models/search": MlflowModels.search_models,
    "registered-models/create": MlflowModels.register_model,
    "registered-models/get": MlflowModels.get_registered,
    "registered-models/set-tag": MlflowModels.get_registered,
    "registered-models/update": MlflowModels.get_registered,
    "model-versions/create": MlflowModels.create_version,
    "model-versions/get": MlflowModels.get_version,
    "model-versions/get-download-uri": MlflowModels.get_version,
    "model-versions/search": MlflowModels.search_versions,
}
