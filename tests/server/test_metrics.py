"""What /metrics tells, to whom, and that it is what Prometheus reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.home.home import Home
from phalanx.server.app import make_app
from phalanx.server.ops.metrics import Metrics, rendered
from phalanx.server.ops.request_stats import RequestStats
from tests.server.site import Site

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+)\Z')


def read(text: str) -> dict[str, dict[str, float]]:
    """By name and labels. Fails on a line that Prometheus would not read."""
    found: dict[str, dict[str, float]] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in typed, f"{name} is told twice"
            assert kind in ("counter", "gauge", "histogram")
            typed.add(name)
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match is not None, line
            base = re.sub(r"_(bucket|sum|count)\Z", "", match[1])
            assert match[1] in typed or base in typed, line
            assert math.isfinite(float(match[3]))
            found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
    return found


def metrics_of(site: Site) -> dict[str, dict[str, float]]:
    answer = site.ask("GET", "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert answer.text.endswith("\n")
    return read(answer.text)


@pytest.fixture
def scheduled(tmp_path: Path) -> Iterator[Site]:
    """A site whose scheduler counts."""
    site = Site(tmp_path)
    site.scheduling.metrics = site.app.state.metrics
    with site:
        yield site


def test_requests_are_counted_by_route_and_not_by_address(scheduled: Site) -> None:
    run_id = scheduled.post("/api/v1/runs", {}, 201)["id"]
    for _ in range(3):
        scheduled.get(f"/api/v1/runs/{run_id}")
    scheduled.ask("GET", "/api/v1/runs/nothing")
    scheduled.ask("GET", f"/no/{run_id}/such")
    scheduled.ask("OPTIONS", "/api/v1/runs")
    found = metrics_of(scheduled)
    requests = found["phalanx_requests_total"]
    assert requests['method="GET",route="/api/v1/runs/{run_id}",status="2xx"'] == 3
    assert requests['method="GET",route="/api/v1/runs/{run_id}",status="4xx"'] == 1
    assert requests['method="POST",route="/api/v1/runs",status="2xx"'] == 1
    assert requests['method="GET",route="other",status="4xx"'] == 1
    assert not [labels for labels in requests if run_id in labels]
    buckets = [value for labels, value in found["phalanx_request_seconds_bucket"].items() if "/runs/{run_id}" in labels]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["phalanx_request_seconds_count"]['route="/api/v1/runs/{run_id}"'] == 4
    assert found["phalanx_requests_under_way"][""] == 1  # this one


def test_runs_the_scheduler_and_the_process_are_reported(scheduled: Site) -> None:
    scheduled.post("/api/v1/runs", {}, 201)
    run_id = scheduled.post("/api/v1/runs", {}, 201)["id"]
    scheduled.post(f"/api/v1/runs/{run_id}/finish", {"status": "failed"})
    found = metrics_of(scheduled)
    assert found["phalanx_runs"]['status="failed"'] == 1
    assert found["phalanx_runs"]['status="running"'] == 1
    assert sum(found["phalanx_runs"].values()) == 2
    assert found["phalanx_queue_length"][""] == 0
    assert found["phalanx_scheduling"][""] == 1
    assert found["phalanx_scheduler_turn_seconds_count"][""] > 0
    assert found["phalanx_database_errors_total"][""] == 0
    assert found["process_open_fds"][""] > 5
    assert found["process_resident_memory_bytes"][""] > 10 << 20
    assert found["process_cpu_seconds_total"][""] > 0
    (about,) = found["phalanx_build_info"]
    assert "version=" in about


def test_who_may_not_look_at_everything_may_not_look_at_these(scheduled: Site) -> None:
    assert scheduled.client.get("/metrics").status_code == 401
    run_id = scheduled.post("/api/v1/runs", {}, 201)["id"]
    assert scheduled.ask("GET", "/metrics", scheduled.run_token(run_id)).status_code == 403


def test_they_may_be_opened_to_everybody(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.server.config.app = make_app(site.context, counting=RequestStats(is_open=True))
    with site:
        assert "phalanx_build_info" in site.client.get("/metrics").text
        assert site.client.get("/api/v1/runs").status_code == 401


def test_a_database_that_does_not_answer_is_counted_and_the_rest_reported(tmp_path: Path) -> None:
    site = Site(tmp_path)
    Home(tmp_path / "home")
    with site:
        site.context.database = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
        answer = site.ask("GET", "/metrics")
        found = read(answer.text)
    assert found["phalanx_database_errors_total"][""] == 1
    assert "phalanx_runs" not in found
    assert found["process_open_fds"][""] > 5


def test_any_label_is_one_line() -> None:
    metrics = Metrics()
    metrics.request("G\nET", '/a"b\\c\nd', 200, 0.3)
    found = read(rendered(metrics.families()))
    assert list(found["phalanx_requests_total"]) == [r'method="other",route="/a\"b\\c\nd",status="2xx"']
    assert found["phalanx_request_seconds_sum"][r'route="/a\"b\\c\nd"'] == 0.3
    assert found["phalanx_request_seconds_bucket"][r'route="/a\"b\\c\nd",le="0.25"'] == 0
    assert found["phalanx_request_seconds_bucket"][r'route="/a\"b\\c\nd",le="1.0"'] == 1


def test_prometheus_own_reader_understands_it(scheduled: Site) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="`make setup` installs it")
    text = scheduled.ask("GET", "/metrics").text
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["phalanx_requests"].type == "counter"
    assert families["phalanx_request_seconds"].type == "histogram"
    samples = {(sample.name, *sample.labels.items()): sample.value for sample in families["phalanx_runs"].samples}
    assert samples["phalanx_runs", ("status", "running")] == 0
    assert families["process_open_fds"].samples[0].value > 5
