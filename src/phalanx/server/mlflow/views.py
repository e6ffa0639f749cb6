"""A run in the format of MLflow's clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from phalanx.server.context import Context
from phalanx.server.labels import DELETED, HIDDEN
from phalanx.server.mlflow.calls import milliseconds
from phalanx.server.mlflow.statuses import THEIRS
from phalanx.store import Run, Summary
from phalanx.tracking.external_folder import BACKEND

OUTPUTS = f"{HIDDEN}outputs"  # label with the logged models that a run made
INPUTS = f"{HIDDEN}inputs"  # label with the logged models that a run used
DATASET = "dataset "  # facts with this prefix are datasets
NAME, NOTE, USER = "mlflow.runName", "mlflow.note.content", "mlflow.user"


def run_row(here: Context, run: Run) -> dict[str, Any]:
    store = here.store
    labels = store.labels(run.id)
    data = {
        "metrics": [metric_row(name, summary) for name, summary in store.summaries(run.id).items()],
        "params": [{"key": name, "value": param_text(value)} for name, value in run.params.items()],
        "tags": [{"key": key, "value": value} for key, value in tags(run, labels).items()],
    }
    inputs = {"dataset_inputs": datasets(store.facts(run.id)), "model_inputs": listed(labels.get(INPUTS))}
    outputs = {"model_outputs": listed(labels.get(OUTPUTS))}
    return {"info": info_row(here, run, labels), "data": data, "inputs": inputs, "outputs": outputs}


def info_row(here: Context, run: Run, labels: Mapping[str, str]) -> dict[str, Any]:
    experiment = here.experiments.of_project(run.project)
    row = {
        "run_id": run.id,
        "run_uuid": run.id,
        "run_name": run.name or "",
        "experiment_id": experiment.id,
        "user_id": run.user,
        "status": THEIRS.get(run.status, "RUNNING"),
        "start_time": _time(run.started_at or run.created_at),
        "artifact_uri": artifact_uri(here, run),
        "lifecycle_stage": "deleted" if DELETED in labels else "active",
    }
    return {**row, "end_time": _time(run.finished_at)} if run.finished_at is not None else row


def artifact_uri(here: Context, run: Run) -> str:
    location = here.experiments.of_project(run.project).location
    if not location:
        return f"mlflow-artifacts:/{run.id}/artifacts"
    below = f"/{run.id}/artifacts"
    if "://" not in location:
        return location.rstrip("/") + below
    parts = urlsplit(location)  # a query or fragment stays at the end
    return parts._replace(path=parts.path.rstrip("/") + below).geturl()


def tags(run: Run, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels, and the fields that MLflow stores as tags."""
    own = {
        NAME: run.name,
        NOTE: run.description,
        USER: run.user,
        "phalanx.tags": ",".join(run.tags),
        **({} if run.backend == BACKEND else {"phalanx.status": run.status, "phalanx.reason": run.reason}),
    }
    shown = {key: value for key, value in own.items() if value}
    return {**shown, **{key: value for key, value in labels.items() if not key.startswith(HIDDEN)}}


def param_text(value: Any) -> str:
    """Values as the store has them, so that a search finds what is shown."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def metric_row(name: str, summary: Summary) -> dict[str, Any]:
    return {
        "key": name,
        "value": float(summary.last),
        "timestamp": milliseconds(summary.at),
        "step": summary.step or 0,
    }


def datasets(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, fact in sorted(facts.items(), key=_logged_at):
        info = fact.get("info") if name.startswith(DATASET) and isinstance(fact, dict) else None
        if isinstance(info, dict) and isinstance(info.get("mlflow"), dict):
            rows.append(info["mlflow"])
        elif isinstance(fact, dict) and name.startswith(DATASET):
            rows.append({"dataset": _plain_dataset(fact), "tags": []})
    return rows


def _logged_at(fact: tuple[str, Any]) -> float:
    at = fact[1].get("at") if isinstance(fact[1], dict) else None
    return float(at) if isinstance(at, int | float) else 0.0


def _plain_dataset(fact: Mapping[str, Any]) -> dict[str, Any]:
    """A dataset that was tracked by Phalanx's own client."""
    source = str(fact.get("uri") or fact.get("path") or "")
    return {
        "name": str(fact.get("name")),
        "digest": str(fact.get("digest") or ""),
        "source_type": "local",
        "source": json.dumps({"uri": source}),
    }


def listed(text: str | None) -> list[Any]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _time(time: datetime | None) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)
