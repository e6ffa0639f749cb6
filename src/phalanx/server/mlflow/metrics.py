"""Calls that read metric histories."""

from __future__ import annotations

from typing import Any

from phalanx.server.mlflow.calls import Call, call, milliseconds, next_token, page
from phalanx.server.mlflow.errors import MlflowError
from phalanx.store.series.run_series import Series

MOST_POINTS = 25_000  # points in one response; clients request the rest
MOST_RUNS = 100
MOST_SAMPLED = 2500


@call("GET", "metrics/get-history", reads=True)
def history(call: Call) -> dict[str, Any]:
    """Every point of a metric in the order of logging: the first replica's, or the calling replica's."""
    line = line_of(call, call.run_id(), call.text("metric_key"))
    if call.fields.get("max_results") is None and not call.fields.get("page_token"):
        return {"metrics": rows(line, 0, len(line.values)) if line is not None else []}
    most, offset = page(call, MOST_POINTS, MOST_POINTS)
    if line is None:
        return {"metrics": []}
    more = {"next_page_token": next_token(offset + most)} if offset + most < len(line.values) else {}
    return {"metrics": rows(line, offset, offset + most), **more}


def line_of(call: Call, run_id: str, metric: str) -> Series | None:
    run = call.run(run_id)
    with call.here.charts.of(call.here.home.run(run.id).path) as series:
        replicas = series.replicas(metric)
        if not replicas:
            return None
        own = call.address.replica if call.address is not None and call.address.run_id == run.id else ""
        return series.series(metric, own if own in replicas else replicas[0])[0]


def rows(line: Series, first: int, end: int) -> list[dict[str, Any]]:
    return [
        {"key": line.metric, "value": value, "timestamp": milliseconds(at), "step": step}
        for value, at, step in zip(line.values[first:end], line.times[first:end], line.steps[first:end], strict=True)
    ]


@call("GET", "metrics/get-history-bulk-interval", reads=True)
def sampled(call: Call) -> dict[str, Any]:
    """The metric of several runs: for each at most this many points, spread evenly, always with its last one."""
    none = "Missing value for required parameter 'run_ids'."
    many = f"GetMetricHistoryBulkInterval request must specify at most {MOST_RUNS} run_ids."
    run_ids, metric = _run_ids(call, "run_ids", none, many), call.text("metric_key")
    most, steps = call.integer("max_results", 320), _steps(call)
    if not 0 < most <= MOST_SAMPLED:
        raise MlflowError(f"max_results must be between 1 and {MOST_SAMPLED}. Got {most}.")
    found = []
    for run_id in run_ids:
        line = line_of(call, run_id, metric)
        if line is not None:
            kept = [row for row in rows(line, 0, len(line.values)) if steps is None or row["step"] in steps]
            kept.sort(key=lambda row: (row["step"], row["timestamp"]))
            found += [{**row, "run_id": run_id} for row in thinned(kept, most)]
    return {"metrics": found}


def _run_ids(call: Call, name: str, none: str, many: str) -> list[str]:
    found = call.texts(name)
    if not found or len(found) > MOST_RUNS:
        raise MlflowError(many if found else none)
    return found


def _steps(call: Call) -> range | None:
    first, last = call.fields.get("start_step"), call.fields.get("end_step")
    if first is None and last is None:
        return None
    if first is None or last is None:
        raise MlflowError("If either start step or end step are specified, both must be specified.")
    found = range(call.integer("start_step"), call.integer("end_step") + 1)
    if not found:
        raise MlflowError(f"end_step must be greater than start_step. Found {first=} and {last=}.")
    return found


def thinned(points: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """As MLflow samples: every n-th point, and the last one."""
    if len(points) <= most:
        return points
    return [*(points[place * len(points) // most] for place in range(most - 1)), points[-1]]


@call("GET", "metrics/get-history-bulk", reads=True)
def bulk(call: Call) -> dict[str, Any]:
    none = "GetMetricHistoryBulk request must specify at least one run_id."
    many = f"GetMetricHistoryBulk request cannot specify more than {MOST_RUNS} run_ids."
    run_ids, metric = _run_ids(call, "run_id", none, many), call.text("metric_key", needed=False)
    if not metric:
        raise MlflowError("GetMetricHistoryBulk request must specify a metric_key.")
    most = min(call.integer("max_results", MOST_POINTS), MOST_POINTS)
    found: list[dict[str, Any]] = []
    for run_id in sorted(run_ids):
        line = line_of(call, run_id, metric)
        if line is not None:
            found += [{**row, "run_id": run_id} for row in rows(line, 0, max(0, most - len(found)))]
    return {"metrics": found}
