"""/api/v1: lists, single runs, and runs that are made and ended elsewhere."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from phalanx.ingest.rebuild import rebuild_store
from phalanx.spool import PointWriter, read
from phalanx.store import Store
from tests.server.site import Site


def create(site: Site, **fields: Any) -> str:
    return str(site.post("/api/v1/runs", fields, 201)["id"])


def test_runs_are_listed_by_query_sorted_and_counted(own_site: Site) -> None:
    for number in range(5):
        create(own_site, name=f"run {number}", project="p" if number % 2 else "q", params={"lr": number / 10})
    assert own_site.get("/api/v1/runs")["count"] == 5
    found = own_site.get("/api/v1/runs", q="params.lr:>0.15", sort="params.lr", limit=2)
    assert (found["count"], [run["name"] for run in found["runs"]]) == (3, ["run 2", "run 3"])
    assert [
        run["name"] for run in own_site.get("/api/v1/runs", q="params.lr:>0.15", sort="params.lr", offset=2)["runs"]
    ] == ["run 4"]
    assert own_site.get("/api/v1/runs", project="p")["count"] == 2
    projects = own_site.get("/api/v1/projects")["projects"]
    assert [(row["name"], row["runs"]) for row in projects] == [("p", 2), ("q", 3)]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"q": "nonsense"}, "field:value"),
        ({"q": "staus:running"}, "did you mean `status`"),
        ({"q": "name:' OR 1=1 --"}, None),
        ({"sort": "no-such"}, "cannot sort"),
        ({"sort": "id; DROP TABLE runs"}, "cannot sort"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"offset": str(2**70)}, "offset"),
        ({"q": "x" * 20_000}, "`q`"),
    ],
)
def test_the_error_of_a_query_says_where(own_site: Site, params: dict[str, str], expected: str | None) -> None:
    create(own_site)
    answer = own_site.ask("GET", "/api/v1/runs", params=params)
    if expected is None:
        assert (answer.status_code, answer.json()["count"]) == (200, 0)
    else:
        assert answer.status_code == 400
        assert expected in answer.json()["error"]["message"]
    assert own_site.get("/api/v1/runs")["count"] == 1


def test_a_run_is_shown_with_all_that_is_known_of_it(site: Site) -> None:
    run_id = create(
        site,
        name="näme of it",
        description="d",
        project="p",
        tags=["a", "b", "a"],
        params={"lr": 0.1, "deep": {"x": [1, 2]}},
        labels={"team": "blue"},
        user="somebody",
        created_at=1_700_000_000,
    )
    run = site.get(f"/api/v1/runs/{run_id}")
    assert (run["name"], run["tags"], run["user"], run["status"]) == ("näme of it", ["a", "b"], "tester", "running")
    assert run["params"] == {"lr": 0.1, "deep": {"x": [1, 2]}}
    assert run["labels"] == {"team": "blue"}
    assert run["created_at"].startswith("2023-11-14")
    assert [change["status"] for change in run["statuses"]] == ["created", "running"]
    assert {"facts", "summaries", "replicas", "artifacts"} <= set(run)


def test_a_run_that_is_not_there_is_reported(site: Site) -> None:
    run_id = create(site)
    for path in ("", "/metrics", "/events", "/outputs", "/logs/master-0", "/metrics/series?name=x"):
        assert site.ask("GET", f"/api/v1/runs/{run_id[:-1]}{path}").status_code == 404, path
        assert site.ask("GET", f"/api/v1/runs/..%2F{run_id}{path}").status_code == 404, path


def test_a_run_may_be_asked_for_again(site: Site) -> None:
    """A client that did not hear the answer asks once more."""
    body = {"id": "mmmmmmmmmm", "project": "p", "name": "n"}
    assert site.post("/api/v1/runs", body, 201)["id"] == "mmmmmmmmmm"
    assert site.post("/api/v1/runs", body, 200)["id"] == "mmmmmmmmmm"
    assert site.get("/api/v1/runs", q="id:mmmmmmmmmm")["count"] == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"id": "../../etc"}',
        b'{"id": "."}',
        b'{"id": ".."}',
        b'{"id": "a/b"}',
        b'{"id": "UPPER"}',
        b'{"id": 5}',
        b'{"id": "a\\u0000bcd"}',
        b'{"name": 5}',
        b'{"project": ["x"]}',
        b'{"tags": "abc"}',
        b'{"tags": [1]}',
        b'{"params": [1]}',
        b'{"created_at": "yesterday"}',
        b'{"created_at": 1e300}',
        b'{"created_at": NaN}',
        b'{"created_at": true}',
        b'{"name": "' + b"x" * 600 + b'"}',
    ],
)
def test_a_hostile_body_makes_no_run(site: Site, body: bytes) -> None:
    before = site.home.run_ids()
    answer = site.ask("POST", "/api/v1/runs", content=body)
    assert answer.status_code in ((201,) if body == b"" else (400,)), answer.text
    if body:
        assert answer.json()["error"]["message"]
        assert site.home.run_ids() == before


def test_names_of_any_kind_are_kept_as_they_are(site: Site) -> None:
    names = [
        "'; DROP TABLE runs; --",
        "\u202eevil",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "{{7*7}}",
        "<script>",
    ]
    for name in names:
        run_id = create(site, name=name, project=name)
        assert site.get(f"/api/v1/runs/{run_id}")["name"] == name


def test_the_end_of_a_run_is_seen_when_it_is_answered(site: Site) -> None:
    run_id = create(site)
    answer = site.post(f"/api/v1/runs/{run_id}/finish", {"status": "failed", "reason": "out of luck"})
    assert answer["status"] == "failed"
    assert "out of luck" in answer["reason"]
    assert site.post(f"/api/v1/runs/{run_id}/finish", {"status": "succeeded"})["status"] == "failed", (
        "the first word counts"
    )


def test_a_run_ended_when_its_client_says(site: Site) -> None:
    run_id = create(site, created_at=time.time() - 100)
    ended = time.time() - 50
    answer = site.post(f"/api/v1/runs/{run_id}/finish", {"status": "succeeded", "at": ended})
    assert abs(site.stored(run_id).finished_at.timestamp() - ended) < 1  # type: ignore[union-attr]
    assert answer["status"] == "succeeded"


@pytest.mark.parametrize("body", [{"status": "running"}, {"status": 5}, {"at": "now"}, {"reason": ["x"]}])
def test_an_end_of_another_kind_is_refused(site: Site, body: Any) -> None:
    run_id = create(site)
    answer = site.ask("POST", f"/api/v1/runs/{run_id}/finish", json=body)
    assert answer.status_code == 400
    assert site.stored(run_id).status == "running"


def test_a_beat_is_a_sign_of_life_and_says_who_asked_to_stop(site: Site) -> None:
    run_id = create(site)
    agent = site.attempt(run_id) / "agent.json"
    before = agent.stat().st_mtime_ns
    time.sleep(0.02)
    assert site.post(f"/api/v1/runs/{run_id}/beat", {}) == {"status": "running", "stop": None}
    assert agent.stat().st_mtime_ns > before


def test_a_run_whose_process_no_one_sees_can_be_stopped(site: Site) -> None:
    run_id = create(site)
    site.home.run(run_id).ask_to_stop("enough")
    assert site.post(f"/api/v1/runs/{run_id}/beat", {})["stop"] == "enough"
    deadline = time.monotonic() + 20
    while not site.stored(run_id).is_done:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (site.stored(run_id).status, site.stored(run_id).reason) == ("stopped", "enough")


def test_a_changed_name_is_in_the_folder_too(site: Site) -> None:
    run_id = create(site, tags=["old"])
    answer = site.ask("PATCH", f"/api/v1/runs/{run_id}", json={"name": "new", "description": "d", "tags": ["x", "y"]})
    assert (answer.status_code, answer.json()["name"], answer.json()["tags"]) == (200, "new", ["x", "y"])
    events = [record.data() for record in read(site.attempt(run_id) / "mlflow.events")]
    assert [event["kind"] for event in events] == ["describe", "tags"]
    assert site.get(f"/api/v1/runs/{run_id}")["description"] == "d"


@pytest.mark.parametrize("body", [{"status": "succeeded"}, {"id": "x"}, {"tags": "x"}, {"name": {}}])
def test_nothing_else_of_a_run_is_changed(site: Site, body: Any) -> None:
    run_id = create(site, name="n")
    assert site.ask("PATCH", f"/api/v1/runs/{run_id}", json=body).status_code == 400
    assert site.get(f"/api/v1/runs/{run_id}")["name"] == "n"


def log_points(site: Site, run_id: str, count: int = 100, first: int = 0) -> None:
    writer = PointWriter(site.attempt(run_id) / "client-1.points")
    for step in range(first, first + count):
        writer.add(step, 1_700_000_000.0 + step, {"loss": 1 / (step + 1), "odd": float("nan")})
    writer.close()


def test_metrics_are_reported_with_their_summaries(site: Site) -> None:
    run_id = create(site)
    log_points(site, run_id)
    metrics = {row["name"]: row for row in site.get(f"/api/v1/runs/{run_id}/metrics")["metrics"]}
    assert metrics["loss"]["count"] == 100
    assert (metrics["loss"]["step"], metrics["loss"]["last"], metrics["loss"]["max"]) == (99, 0.01, 1.0)
    assert metrics["odd"]["last"] == "NaN"


def test_a_series_comes_in_buckets_or_point_for_point(site: Site) -> None:
    run_id = create(site)
    log_points(site, run_id)
    path = f"/api/v1/runs/{run_id}/metrics/series"
    buckets = site.get(path, name="loss", buckets=10)["buckets"]["master-0"]
    assert len(buckets) <= 10
    assert sum(bucket["count"] for bucket in buckets) == 100
    (line,) = site.get(path, name="loss", buckets=0)["series"]
    assert (line["steps"], line["values"][1], line["replica"]) == (list(range(100)), 0.5, "master-0")
    (line,) = site.get(path, name="loss", buckets=0, first=10, last=12)["series"]
    assert line["steps"] == [10, 11, 12]
    (line,) = site.get(path, name="odd", buckets=0)["series"]
    assert set(line["values"]) == {"NaN"}
    assert site.get(path, name="loss", buckets=0, replica="worker-9")["series"] == []
    ranks = site.get(path, name="loss", over_ranks=True, buckets=0)["ranks"]
    assert (len(ranks), ranks[0]["mean"]) == (100, 1.0)


def test_a_series_that_grows_is_read_on(site: Site) -> None:
    run_id = create(site)
    log_points(site, run_id, 10)
    path = f"/api/v1/runs/{run_id}/metrics/series"
    assert len(site.get(path, name="loss", buckets=0)["series"][0]["steps"]) == 10
    log_points(site, run_id, 5, first=10)
    assert len(site.get(path, name="loss", buckets=0)["series"][0]["steps"]) == 15


@pytest.mark.parametrize(
    "params", [{}, {"name": "no"}, {"name": "loss", "buckets": 10**9}, {"name": "loss", "first": 2**70}]
)
def test_a_series_that_cannot_be_reported_is_refused(site: Site, params: dict[str, Any]) -> None:
    run_id = create(site)
    log_points(site, run_id, 3)
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/metrics/series", params=params)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]


def test_events_are_reported_by_kind_and_name(site: Site) -> None:
    run_id = create(site)
    with site.context.run_writers.of(run_id) as writer:
        for step in range(5):
            writer.events(site.attempt(run_id), {"kind": "text", "name": "sample", "step": step, "text": f"t{step}"})
        writer.events(site.attempt(run_id), {"kind": "progress", "done": 1, "total": 2})
    found = site.get(f"/api/v1/runs/{run_id}/events", kind="text", limit=2, offset=1)
    assert (found["count"], [event["text"] for event in found["events"]]) == (5, ["t1", "t2"])
    assert found["events"][0]["replica"] == "master-0"
    assert site.get(f"/api/v1/runs/{run_id}/events", kind="text", name="other")["count"] == 0
    assert site.get(f"/api/v1/runs/{run_id}/events", replica="worker-0")["count"] == 0
    (site.attempt(run_id) / "broken.events").write_bytes(b"\xa7P not a record \xa7P")
    assert site.get(f"/api/v1/runs/{run_id}/events")["count"] == 6


def test_a_full_table_of_models_is_reported(own_site: Site) -> None:
    assert own_site.get("/api/v1/models") == {"count": 0, "models": []}
    assert own_site.ask("GET", "/api/v1/models/nothing").status_code == 404


def test_what_was_sent_is_in_the_store_after_it_was_made_again(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = create(own_site, params={"lr": 1}, labels={"team": "blue"})
    own_site.ask("PATCH", f"/api/v1/runs/{run_id}", json={"name": "kept"})
    own_site.post(f"/api/v1/runs/{run_id}/finish", {})
    own_site.scheduling.stop()
    import os

    os.environ["PHALANX_HOME"] = str(own_site.home.path)
    try:
        rebuild_store()
    finally:
        del os.environ["PHALANX_HOME"]
    with Store.open(own_site.home.path) as store:
        run = store.find(run_id)
        assert (run.name, dict(run.params), store.labels(run_id)) == ("kept", {"lr": 1}, {"team": "blue"})
    assert json.loads((own_site.folder(run_id) / "run.json").read_bytes())["id"] == run_id


def test_only_an_admin_names_another_user(site: Site) -> None:
    editor = site.context.tokens.create("an-editor", "editor")
    admin = site.context.tokens.create("an-admin", "admin")
    users = []
    for token in (editor, admin):
        made = site.ask("POST", "/api/v1/runs", token, json={"user": "somebody"}).json()["id"]
        tags = [{"key": "mlflow.user", "value": "somebody"}]
        fields = {"experiment_id": "0", "user_id": "somebody", "tags": tags}
        known = site.mlflow("POST", "runs/create", fields, token=token)["run"]["info"]["run_id"]
        users += [site.stored(made).user, site.stored(known).user]
    assert users == ["an-editor", "an-editor", "somebody", "somebody"]


@pytest.mark.parametrize("name", ["two\nlines", "\x00", "*", "a\x1b[31m"])
def test_a_project_has_a_name_of_one_line(site: Site, name: str) -> None:
    assert site.ask("POST", "/api/v1/runs", json={"project": name}).status_code == 400
    assert site.mlflow_answer("POST", "experiments/create", {"name": name}).status_code == 400


def test_names_of_any_length_are_stored_or_refused(site: Site) -> None:
    for text in ("é" * 200, "x" * 400, "😀" * 120):
        for fields in ({"name": text}, {"project": text}, {"tags": [text]}, {"group": text}):
            assert site.ask("POST", "/api/v1/runs", json=fields).status_code in (201, 400)
        assert site.mlflow_answer("POST", "experiments/create", {"name": text}).status_code in (200, 400)
        assert site.mlflow_answer("POST", "registered-models/create", {"name": text}).status_code in (200, 400)
        run_id = site.begin()
        for path in (f"artifacts/{text}", f"artifacts/{text}/x", f"models/{text}/1"):
            answer = site.ask("PUT", f"/api/v1/runs/{run_id}/files/{path}?whole=1", content=b"x")
            assert answer.status_code in (200, 400), (path, answer.text)
