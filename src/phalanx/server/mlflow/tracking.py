"""Calls that log to a run: metrics, params, tags, datasets, models."""

from __future__ import annotations

import json
import time
from typing import Any

from phalanx.server.mlflow.calls import Call, call
from phalanx.server.mlflow.errors import MlflowError, not_found
from phalanx.server.mlflow.experiments import parts
from phalanx.server.mlflow.logged_models import log_metrics
from phalanx.server.mlflow.run_writes import (
    check_live,
    check_tags,
    note_labels,
    params_of,
    place,
    point_of,
    write_params,
    write_points,
)
from phalanx.server.mlflow.views import DATASET, INPUTS, NAME, NOTE, OUTPUTS, listed
from phalanx.store import Run

MOST_METRICS, MOST_PARAMS, MOST_TAGS, MOST_IN_ALL = 1000, 100, 100, 1000
LONGEST_DATASET = 17_000_000


@call("POST", "runs/log-metric")
def log_metric(call: Call) -> dict[str, Any]:
    run = call.own_run()
    points = [point_of(call.fields)]
    with call.here.run_writers.of(run.id) as writer:
        check_live(call, run)
        write_points(call, run, writer, points)
        log_metrics(call, run, [call.fields])
    return {}


@call("POST", "runs/log-parameter")
def log_param(call: Call) -> dict[str, Any]:
    run = call.own_run()
    with call.here.run_writers.of(run.id) as writer:
        check_live(call, run)
        write_params(call, call.run(run.id), writer, params_of([call]))
    return {}


@call("POST", "runs/set-tag")
def set_tag(call: Call) -> dict[str, Any]:
    run = call.own_run()
    tags = check_tags({call.text("key"): call.text("value", 10**7, needed=False)})
    with call.here.run_writers.of(run.id):
        check_live(call, run)
        note_labels(call, run, tags)
    return {}


@call("POST", "runs/delete-tag")
def delete_tag(call: Call) -> dict[str, Any]:
    run, key = call.own_run(), call.text("key")
    with call.here.run_writers.of(run.id):
        check_live(call, run)
        known = {**call.here.store.labels(run.id), **({NAME: run.name} if run.name else {})}
        if key not in {**known, **({NOTE: run.description} if run.description else {})}:
            raise not_found(f"No tag with name: {key[:100]} in run with id {run.id}")
        note_labels(call, run, {key: None})
    return {}


@call("POST", "runs/log-batch")
def log_batch(call: Call) -> dict[str, Any]:
    """Validates everything before anything is written."""
    run = call.own_run()
    metrics, params, tags = (call.objects(name) for name in ("metrics", "params", "tags"))
    for what, given, most in (
        ("metrics", metrics, MOST_METRICS),
        ("params", params, MOST_PARAMS),
        ("tags", tags, MOST_TAGS),
    ):
        if len(given) > most:
            raise MlflowError(f"A batch logging request can contain at most {most} {what}. Got {len(given)} {what}.")
    if len(metrics) + len(params) + len(tags) > MOST_IN_ALL:
        raise MlflowError(
            f"A batch logging request can contain at most {MOST_IN_ALL} metrics, params and tags together."
        )
    points = [point_of(metric, f"metrics[{place}].") for place, metric in enumerate(metrics)]
    given_params = params_of([call.of(fields) for fields in params])
    given_tags = check_tags({one.text("key"): one.text("value", 10**7, needed=False) for one in parts(call, "tags")})
    with call.here.run_writers.of(run.id) as writer:
        check_live(call, run)
        if given_params:
            write_params(call, call.run(run.id), writer, given_params)
        write_points(call, run, writer, points)
        log_metrics(call, run, metrics)
        if given_tags:
            note_labels(call, run, given_tags)
    return {}


@call("POST", "runs/log-inputs")
def log_inputs(call: Call) -> dict[str, Any]:
    run = call.own_run()
    given = [call.of(fields) for fields in call.objects("datasets", 1000)]
    now = time.time()
    events = [_dataset_event(one, now + place * 1e-6) for place, one in enumerate(given)]  # keeps their order
    with call.here.run_writers.of(run.id) as writer:
        check_live(call, run)
        if events:
            writer.events(place(call, run), *events)
        for event in events:
            call.here.store.put_fact(run.id, f"{DATASET}{event['name']}", event)
        models = [{"model_id": one.text("model_id")} for one in parts(call, "models")]
        if models:
            _add_to_label(call, run, INPUTS, models)
    return {}


def _dataset_event(one: Call, now: float) -> dict[str, Any]:
    dataset = one.of(one.inner("dataset"))
    name, digest = dataset.name("name", 500), dataset.name("digest", 100)
    kept = {
        key: dataset.text(key, LONGEST_DATASET, needed=False)
        for key in ("source_type", "source", "schema", "profile")
        if dataset.fields.get(key)
    }
    tags = [{"key": tag.name("key"), "value": tag.text("value", needed=False)} for tag in parts(one, "tags")]
    row = {"dataset": {"name": name, "digest": digest, **kept}, "tags": tags}
    # Two datasets of one name are distinguished by their content, as in MLflow.
    return {"at": now, "kind": "dataset", "name": f"{name} ({digest})", "digest": digest, "info": {"mlflow": row}}


@call("POST", "runs/outputs")
def log_outputs(call: Call) -> dict[str, Any]:
    run = call.own_run()
    models = [{"model_id": one.text("model_id"), "step": one.integer("step", 0)} for one in parts(call, "models")]
    with call.here.run_writers.of(run.id):
        _add_to_label(call, run, OUTPUTS, models)
    return {}


def _add_to_label(call: Call, run: Run, label: str, rows: list[dict[str, Any]]) -> None:
    known = listed(call.here.store.labels(run.id).get(label))
    note_labels(call, run, {label: json.dumps([*known, *(row for row in rows if row not in known)])})


@call("POST", "runs/log-model")
def log_model(call: Call) -> dict[str, Any]:
    """The description that clients before 3.0 send of a model logged as an artifact; stored in a tag, as MLflow
    does."""
    run = call.own_run()
    text = call.text("model_json", 10**7)
    try:
        model = json.loads(text)
        described = {key: model[key] for key in ("run_id", "artifact_path", "utc_time_created", "flavors")}
    except (ValueError, KeyError, TypeError):
        raise MlflowError(
            "Malformed model info: expected JSON with run_id, artifact_path, utc_time_created and flavors"
        ) from None
    key = "mlflow.log-model.history"
    with call.here.run_writers.of(run.id):
        known = listed(call.here.store.labels(run.id).get(key))
        note_labels(call, run, {key: json.dumps([*known, described])})
    return {}
