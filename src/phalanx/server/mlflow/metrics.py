"""Calls that read metric histories."""

from __future__ import annotations

from typing import Any

from phalanx.server.mlflow.calls import Call, call, milliseconds, next_token, page
from phalanx.server.mlflow.errors import MlflowError
from phalanx.store.series.run_series import Series

MOST_POINTS = 25_000  # points in one response; clients request the rest
MOST_RUNS = 100


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
    """The metric of several runs: for each at most this many points, spread evenly over its steps."""
    run_ids, metric = call.texts("run_ids", MOST_RUNS), call.text("metric_key")
    most = call.integer("max_results", 320)
    first, last = call.integer("start_step", -(2**63)), call.integer("end_step", 2**63 - 1)
    if not run_ids or not 0 < most <= 2500 or first > last:
        raise MlflowError(
            "run_ids, a max_results of 1 to 2500, and a start_step that is not after the end_step are required"
        )
    found = []
    for run_id in run_ids:
        line = line_of(call, run_id, metric)
        if line is not None:
            kept = [row for row in rows(line, 0, len(line.values)) if first <= row["step"] <= last]
            every = max(1, -(-len(kept) // most))
            thinned = kept[::every] if not kept or kept[::every][-1] == kept[-1] else [*kept[::every], kept[-1]]
            found += [{**row, "run_id": run_id} for row in thinned]
    return {"metrics": found}


@call("GET", "metrics/get-history-bulk", reads=True)
def bulk(call: Call) -> dict[str, Any]:
    run_ids, metric = call.texts("run_id", MOST_RUNS), call.text("metric_key")
    most = min(call.integer("max_results", MOST_POINTS), MOST_POINTS)
    found: list[dict[str, Any]] = []
    for run_id in run_ids:
        line = line_of(call, run_id, metric)
        if line is not None:
            found += [{**row, "run_id": run_id} for row in rows(line, 0, max(0, most - len(found)))]
    return {"metrics": found}
