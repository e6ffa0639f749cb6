"""The route of a pipeline, on a real server with a real scheduler and real ops."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from phalanx.client import Client
from tests.server.site import Site
from tests.server.started import PATIENCE_S, until

SMALL = {"environment": {"resources": {"cpu": {"requests": 0.01}}}}


def begin(site: Site, second: str, **fields: Any) -> str:
    content = {
        "version": 1,
        "kind": "pipeline",
        "name": "nightly",
        "ops": [
            {"name": "a", "template": {"name": "a"}},
            {"name": "b", "template": {"name": "b"}, "params": {"n": "{{ ops.a.outputs.n }}"}},
            {"name": "c", "template": {"name": "a"}, "dependencies": ["b"]},
        ],
        "templates": [
            {"kind": "job", "name": "a", "outputs": [{"name": "n", "type": "int"}], **SMALL,
             "run": {"cmd": """echo '{"n": 7}' > $PHALANX_OUTPUTS/outputs.json"""}},
            {"kind": "job", "name": "b", "run": {"cmd": second}, **SMALL},
        ],
        **fields,
    }  # fmt: skip
    body = {"files": [{"name": "pipeline.yml", "text": json.dumps(content)}], "project": "p"}
    return str(site.post("/api/v1/runs/submit", body, 201)["id"])


def test_a_pipeline_shows_its_ops_edges_and_states(site: Site) -> None:
    pipeline = begin(site, "echo {{ n }}; test -e ../../ready-$PHALANX_OP")
    until(site, pipeline, "failed")
    shown = site.get(f"/api/v1/pipelines/{pipeline}")
    assert (shown["kind"], shown["status"], shown["counts"]) == (
        "pipeline",
        "failed",
        {"succeeded": 1, "failed": 1, "upstream_failed": 1},
    )
    first, second, third = shown["ops"]
    assert (first["name"], first["kind"], first["status"], first["outputs"]) == ("a", "job", "succeeded", {"n": 7})
    assert (second["params"], second["dependencies"], second["retries"]) == ({"n": 7}, ["a"], 0)
    assert first["ended_at"] <= second["started_at"] <= second["ended_at"]
    assert (third["run_id"], third["reason"]) == (None, "its trigger is `all_succeeded`: op `b` failed")
    assert shown["edges"] == [
        {"source": "a", "target": "b", "kind": "output"},
        {"source": "b", "target": "c", "kind": "dependency"},
    ]
    details = site.get(f"/api/v1/runs/{second['run_id']}")
    assert (details["group"], details["is_op"], details["is_trial"]) == (pipeline, True, False)
    listed = site.get("/api/v1/runs", q=f"id:{pipeline}")["runs"][0]
    assert listed["pipeline"] == {
        "ops": {"succeeded": 1, "failed": 1, "upstream_failed": 1},
        "total": 3,
        "concurrency": None,
    }
    folded = site.get("/api/v1/runs", q="name:nightly%", fold=True)["runs"]
    assert [run["id"] for run in folded] == [pipeline]


def test_a_run_that_is_no_pipeline_is_refused(site: Site) -> None:
    pipeline = begin(site, "true")
    until(site, pipeline, "succeeded")
    op = site.get(f"/api/v1/pipelines/{pipeline}")["ops"][0]["run_id"]
    refused = site.ask("GET", f"/api/v1/pipelines/{op}")
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        409,
        f"run {op} is not a pipeline: its kind is job",
    )


def test_a_server_makes_the_ticks_of_a_schedule(site: Site) -> None:
    schedule = begin(site, "true", schedule={"kind": "interval", "frequency": 3600})
    shown: dict[str, Any] = {}

    def has_ticked() -> bool:
        shown.update(site.get(f"/api/v1/pipelines/{schedule}"))
        return [tick["status"] for tick in shown["ticks"]] == ["succeeded"]

    deadline = time.monotonic() + PATIENCE_S
    while not has_ticked():
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)
    assert (shown["kind"], shown["status"], shown["schedule"]["frequency"]) == ("schedule", "running", 3600)
    assert shown["next_tick"] > shown["ticks"][0]["at"]
    child = site.get(f"/api/v1/pipelines/{shown['ticks'][0]['run_id']}")
    assert (child["kind"], child["status"], child["scheduled_by"]) == ("pipeline", "succeeded", schedule)
    site.post(f"/api/v1/runs/{schedule}/stop", None)
    until(site, schedule, "stopped")


@pytest.mark.slow
def test_python_reads_a_pipeline_of_a_server(site: Site) -> None:
    pipeline = begin(site, "true")
    until(site, pipeline, "succeeded")
    with Client(site.url, site.token) as client:
        view = client.pipeline(pipeline)
    assert (view.id, view.status, view.op("a").outputs) == (pipeline, "succeeded", {"n": 7})
    assert [op.status for op in view.ops] == ["succeeded"] * 3
