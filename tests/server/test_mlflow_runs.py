"""MLflow's calls about runs, as a client's bytes arrive."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.ingest.indexer import RunIndexer
from phalanx.ingest.rebuild import rebuild_store
from phalanx.server.auth.identities import Identity, Role
from phalanx.server.http.responses import RequestError
from phalanx.server.mlflow.calls import CALLS, Call
from phalanx.server.mlflow.errors import MlflowError
from phalanx.spool import read
from phalanx.store import Store
from phalanx.store.series.compaction import compact
from phalanx.store.series.run_series import RunSeries
from tests.server.site import API, Site, experiment, refused


def metric(site: Site, run_id: str, key: str, value: Any, **more: Any) -> None:
    site.mlflow(
        "POST",
        "runs/log-metric",
        {"run_id": run_id, "key": key, "value": value, "timestamp": 1_700_000_000_000, **more},
    )


def history(site: Site, run_id: str, key: str, **more: Any) -> list[Any]:
    rows = site.mlflow("GET", "metrics/get-history", {"run_id": run_id, "metric_key": key, **more})["metrics"]
    return [(row["step"], row["value"]) for row in rows]


# metrics ------------------------------------------------------------------------------------------------------------


def test_metrics_are_in_the_file_in_the_history_and_in_lists(site: Site) -> None:
    run_id = site.begin()
    for step in range(5):
        metric(site, run_id, "loss", 1.0 / (step + 1), step=step)
    assert history(site, run_id, "loss") == [(step, 1.0 / (step + 1)) for step in range(5)]
    (line,) = RunSeries(site.folder(run_id)).series("loss")
    assert list(line.values) == [1.0 / (step + 1) for step in range(5)]
    assert site.stored(run_id).summary == {"loss": 0.2}
    (row,) = site.run(run_id)["data"]["metrics"]
    assert row == {"key": "loss", "value": 0.2, "timestamp": 1_700_000_000_000, "step": 4}


def test_without_steps_every_value_is_kept(site: Site) -> None:
    """MLflow's clients send step 0 when none was given."""
    run_id = site.begin()
    for value in (3.0, 1.0, 2.0):
        metric(site, run_id, "acc", value, step=0)
    assert history(site, run_id, "acc") == [(0, 3.0), (0, 1.0), (0, 2.0)]
    assert site.run(run_id)["data"]["metrics"][0]["value"] == 2.0


def check_last(site: Site, run_id: str, key: str, value: float, count: int) -> None:
    """Every list, search and history says the same: before and after the scheduler has read the files."""
    for is_read in (False, True):
        if is_read:
            with Store.open(site.home.path, site.database) as store:
                RunIndexer(site.home, store, store.find(run_id), ["master-0"]).run_pass()
        assert len(history(site, run_id, key)) == count
        assert [row["value"] for row in site.run(run_id)["data"]["metrics"]] == [value]
        assert site.stored(run_id).summary == {key: value}
        (row,) = site.get(f"/api/v1/runs/{run_id}/metrics")["metrics"]
        assert (row["last"], row["count"]) == (value, count)
        assert site.get(f"/api/v1/runs/{run_id}")["summaries"][key]["count"] == count
        assert [run["id"] for run in site.get("/api/v1/runs", q=f"metric.{key}:{value}")["runs"]] == [run_id]
        search = {"experiment_ids": ["0"], "filter": f"metrics.{key} = {value}"}
        assert len(site.mlflow("POST", "runs/search", search)["runs"]) == 1


@pytest.mark.slow
def test_the_last_value_is_that_of_the_largest_step_everywhere_at_every_moment(site: Site) -> None:
    run_id = site.begin()
    for count, (step, last) in enumerate([(1, 1.0), (5, 5.0), (3, 5.0)], 1):
        metric(site, run_id, "acc", float(step), step=step, timestamp=1_700_000_000_000 + count)
        check_last(site, run_id, "acc", last, count)


@pytest.mark.slow
def test_a_scheduler_that_reads_meanwhile_never_brings_an_older_value_back(site: Site) -> None:
    run_id = site.begin()
    is_over = threading.Event()

    def read() -> None:
        with Store.open(site.home.path, site.database) as store:
            indexer = RunIndexer(site.home, store, store.find(run_id), ["master-0"])
            while not is_over.is_set():
                indexer.next_at = 0.0
                indexer.run_pass()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for step in range(150):
            metric(site, run_id, "loss", float(step), step=step, timestamp=1_700_000_000_000 + step)
            (row,) = site.run(run_id)["data"]["metrics"]
            assert (row["value"], row["step"]) == (float(step), step)
            with Store.open(site.home.path, site.database) as store:
                assert store.summaries(run_id)["loss"].count == step + 1
    finally:
        is_over.set()
        reader.join()


def test_points_that_are_sent_again_with_a_model_count_once(site: Site) -> None:
    """As MLflow 3 does in `log_model`."""
    run_id = site.begin()
    points = [
        {"key": "loss", "value": 10.0 - step, "step": step, "timestamp": 1_700_000_000_000 + step} for step in range(10)
    ]
    for point in points:
        site.mlflow("POST", "runs/log-metric", {"run_id": run_id, **point})
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": [points[0], points[0], points[9]]})
    check_last(site, run_id, "loss", 1.0, 10)
    site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "FINISHED", "end_time": 1_700_000_100_000})
    compact(site.folder(run_id), 1)
    check_last(site, run_id, "loss", 1.0, 10)
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": points})
    check_last(site, run_id, "loss", 1.0, 10)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (1e308, 1e308),
        (5e-324, 5e-324),
        ("0.25", 0.25),
        (7, 7.0),
    ],
)
def test_odd_values_come_back_as_they_were(site: Site, sent: Any, shown: Any) -> None:
    run_id = site.begin()
    metric(site, run_id, "odd", sent)
    assert history(site, run_id, "odd") == [(0, shown)]
    assert site.run(run_id)["data"]["metrics"][0]["value"] == shown


@pytest.mark.parametrize("step", [0, -5, 2**63 - 1, -(2**63), "17"])
def test_steps_are_any_of_64_bits(site: Site, step: Any) -> None:
    run_id = site.begin()
    metric(site, run_id, "m", 1.0, step=step)
    expected = max(int(step), -(2**63) + 1)  # the lowest of all means that none was given
    assert history(site, run_id, "m") == [(expected, 1.0)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "abc"},
        {"value": None},
        {"value": []},
        {"value": True},
        {"value": "1_000"},
        {"value": 10**400},
        {"key": ""},
        {"key": 5},
        {"key": None},
        {"key": "x" * 251},
        {"step": "abc"},
        {"step": 2**63},
        {"step": 1.5},
        {"step": [1]},
        {"timestamp": -1},
        {"timestamp": "now"},
        {"timestamp": 10**18},
        {"timestamp": 2**80},
    ],
)
def test_a_wrong_metric_is_refused_alone_and_in_a_batch(site: Site, wrong: dict[str, Any]) -> None:
    run_id = site.begin()
    fields = {"key": "m", "value": 1.0, "timestamp": 1, "step": 1, **wrong}
    refused(site, "POST", "runs/log-metric", {"run_id": run_id, **fields})
    good = {"key": "good", "value": 1.0, "timestamp": 1, "step": 1}
    refused(site, "POST", "runs/log-batch", {"run_id": run_id, "metrics": [good, fields]})
    assert site.run(run_id)["data"]["metrics"] == [], "all of a batch, or nothing"


@pytest.mark.parametrize("key", ["a/b", "a b", "ünï", "'; DROP TABLE summaries", "\u202e", "x" * 250])
def test_names_of_metrics_are_any(site: Site, key: str) -> None:
    run_id = site.begin()
    metric(site, run_id, key, 1.0)
    assert history(site, run_id, key) == [(0, 1.0)]
    assert [row["key"] for row in site.run(run_id)["data"]["metrics"]] == [key]


def test_a_batch_is_one_burst_of_up_to_a_thousand(site: Site) -> None:
    run_id = site.begin()
    rows = [{"key": f"m{n % 7}", "value": n, "timestamp": 1_700_000_000_000 + n, "step": n // 7} for n in range(1000)]
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": rows})
    for name in range(7):
        assert history(site, run_id, f"m{name}") == [(n // 7, float(n)) for n in range(1000) if n % 7 == name]
    answer = refused(site, "POST", "runs/log-batch", {"run_id": run_id, "metrics": [*rows, rows[0]]})
    assert "at most 1000 metrics" in answer
    too_many = {"metrics": rows[:950], "params": [{"key": f"p{n}", "value": "1"} for n in range(60)]}
    assert "together" in refused(site, "POST", "runs/log-batch", {"run_id": run_id, **too_many})
    assert "100 params" in refused(
        site,
        "POST",
        "runs/log-batch",
        {"run_id": run_id, "params": [{"key": f"p{n}", "value": "1"} for n in range(101)]},
    )


@pytest.mark.slow
def test_a_long_history_comes_in_pages(site: Site) -> None:
    run_id = site.begin()
    for start in range(0, 30_000, 1000):
        rows = [
            {"key": "m", "value": n, "timestamp": 1_700_000_000_000 + n, "step": n} for n in range(start, start + 1000)
        ]
        site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": rows})
    found: list[int] = []
    token, pages = None, 0
    while pages < 10:
        fields = {
            "run_id": run_id,
            "metric_key": "m",
            "max_results": 25_000,
            **({"page_token": token} if token else {}),
        }
        answer = site.mlflow("GET", "metrics/get-history", fields)
        found += [row["step"] for row in answer["metrics"]]
        token, pages = answer.get("next_page_token"), pages + 1
        if token is None:
            break
    assert (pages, found) == (2, list(range(30_000)))


def test_intervals_of_a_metric_are_sampled_as_mlflow_does(site: Site) -> None:
    run_id = site.begin()
    rows = [{"key": "m", "value": 1, "timestamp": at, "step": step} for at in (1, 2) for step in range(10)]
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": rows})

    def sampled(**more: Any) -> list[tuple[int, int]]:
        fields = {"run_ids": [run_id], "metric_key": "m", **more}
        found = site.mlflow("GET", "metrics/get-history-bulk-interval", fields)["metrics"]
        return [(row["step"], row["timestamp"]) for row in found]

    assert len(sampled()) == 20
    assert sampled(max_results=5) == [(0, 1), (2, 1), (4, 1), (6, 1), (9, 2)]
    assert sampled(max_results=4, start_step=8, end_step=9) == [(8, 1), (8, 2), (9, 1), (9, 2)]
    assert sampled(max_results=1) == [(9, 2)]
    for name, value in (("start_step", 1), ("start_step", 10), ("max_results", 0), ("run_ids", [])):
        fields = {"run_ids": [run_id], "metric_key": "m", **({"end_step": 9} if value == 10 else {}), name: value}
        assert site.mlflow_answer("GET", "metrics/get-history-bulk-interval", fields).status_code == 400


def test_a_run_without_a_name_gets_one(site: Site) -> None:
    run = site.mlflow("POST", "runs/create", {"experiment_id": "0"})["run"]
    assert re.fullmatch(r"[a-z]+-[a-z]+-\d{1,3}", run["info"]["run_name"])
    assert {"key": "mlflow.runName", "value": run["info"]["run_name"]} in run["data"]["tags"]


def test_the_same_batch_of_one_metric_keeps_its_order(site: Site) -> None:
    run_id = site.begin()
    rows = [{"key": "m", "value": value, "timestamp": 5, "step": 0} for value in (1, 2, 3)]
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": rows})
    assert history(site, run_id, "m") == [(0, 1.0), (0, 2.0), (0, 3.0)]


@pytest.mark.slow
def test_what_many_log_at_once_is_all_there(site: Site) -> None:
    runs = [site.begin() for _ in range(2)]

    def work(number: int) -> None:
        for step in range(25):
            metric(site, runs[number % 2], f"m{number}", step, step=step)
            site.mlflow("POST", "runs/set-tag", {"run_id": runs[number % 2], "key": f"t{number}-{step}", "value": "x"})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        run_id = runs[number % 2]
        assert history(site, run_id, f"m{number}") == [(step, float(step)) for step in range(25)]
        assert {f"t{number}-{step}" for step in range(25)} <= set(site.tags(run_id))


def test_points_logged_after_compaction_are_there_too(site: Site) -> None:
    run_id = site.begin()
    metric(site, run_id, "m", 1.0, step=1)
    site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "FINISHED"})
    compact(site.folder(run_id), 1)
    assert not (site.attempt(run_id) / "mlflow.points").exists()
    metric(site, run_id, "m", 2.0, step=2)
    assert history(site, run_id, "m") == [(1, 1.0), (2, 2.0)]


# params, tags, names ------------------------------------------------------------------------------------------------


def test_params_do_not_change(site: Site) -> None:
    run_id = site.begin()
    fields = {"run_id": run_id, "key": "lr", "value": "0.1"}
    site.mlflow("POST", "runs/log-parameter", fields)
    site.mlflow("POST", "runs/log-parameter", fields)
    answer = refused(site, "POST", "runs/log-parameter", {**fields, "value": "0.2"})
    assert "Changing param values is not allowed" in answer
    both = [{"key": "a", "value": "1"}, {"key": "lr", "value": "0.3"}]
    refused(site, "POST", "runs/log-batch", {"run_id": run_id, "params": both})
    refused(
        site,
        "POST",
        "runs/log-batch",
        {"run_id": run_id, "params": [{"key": "b", "value": "1"}, {"key": "b", "value": "2"}]},
    )
    assert site.run(run_id)["data"]["params"] == [{"key": "lr", "value": "0.1"}]
    assert "exceeds" in refused(
        site, "POST", "runs/log-parameter", {"run_id": run_id, "key": "long", "value": "x" * 6001}
    )
    assert "exceeds" in refused(site, "POST", "runs/log-parameter", {"run_id": run_id, "key": "x" * 251, "value": "1"})


def test_params_are_found_by_phalanx_as_numbers(site: Site) -> None:
    run_id = site.begin()
    site.mlflow("POST", "runs/log-parameter", {"run_id": run_id, "key": "lr", "value": "0.1"})
    assert site.get("/api/v1/runs", q=f"params.lr:<0.2, id:{run_id}")["count"] == 1


def test_tags_are_labels_and_some_are_more(site: Site) -> None:
    tags = [
        {"key": "mlflow.runName", "value": "from tag"},
        {"key": "mlflow.note.content", "value": "a note"},
        {"key": "mlflow.user", "value": "ada"},
        {"key": "team", "value": "blue"},
    ]
    run_id = site.begin(tags=tags)
    run = site.stored(run_id)
    assert (run.name, run.description, run.user) == ("from tag", "a note", "tester")
    kept = {**{tag["key"]: tag["value"] for tag in tags}, "mlflow.user": "tester"}  # only an admin names another user
    assert site.tags(run_id) == kept
    site.mlflow("POST", "runs/set-tag", {"run_id": run_id, "key": "mlflow.runName", "value": "renamed"})
    site.mlflow("POST", "runs/set-tag", {"run_id": run_id, "key": "team", "value": "red"})
    assert (site.stored(run_id).name, site.tags(run_id)["team"]) == ("renamed", "red")
    site.mlflow("POST", "runs/delete-tag", {"run_id": run_id, "key": "team"})
    assert "team" not in site.tags(run_id)
    refused(site, "POST", "runs/delete-tag", {"run_id": run_id, "key": "team"}, "RESOURCE_DOES_NOT_EXIST")
    site.mlflow("POST", "runs/update", {"run_id": run_id, "run_name": "again"})
    assert site.run(run_id)["info"]["run_name"] == "again"
    assert "exceeds" in refused(site, "POST", "runs/set-tag", {"run_id": run_id, "key": "x", "value": "y" * 8001})


def test_everything_is_in_the_folder_and_comes_back_from_it(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = own_site.begin(run_name="n", tags=[{"key": "team", "value": "blue"}])
    own_site.mlflow("POST", "runs/log-batch", {
        "run_id": run_id,
        "metrics": [{"key": "m", "value": 1.5, "timestamp": 1_700_000_000_000, "step": 3}],
        "params": [{"key": "lr", "value": "0.1"}],
        "tags": [{"key": "x", "value": "1"}, {"key": "gone", "value": "1"}],
    })  # fmt: skip
    own_site.mlflow("POST", "runs/delete-tag", {"run_id": run_id, "key": "gone"})
    dataset = {"name": "d", "digest": "abc", "source_type": "http", "source": "{}"}
    own_site.mlflow(
        "POST",
        "runs/log-inputs",
        {
            "run_id": run_id,
            "datasets": [{"dataset": dataset, "tags": [{"key": "mlflow.data.context", "value": "train"}]}],
        },
    )
    own_site.ask("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{run_id}/artifacts/a.txt", content=b"x")
    own_site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "FINISHED"})
    before = own_site.run(run_id)
    assert before["inputs"]["dataset_inputs"][0]["dataset"] == dataset
    own_site.scheduling.stop()
    monkeypatch.setenv("PHALANX_HOME", str(own_site.home.path))
    rebuild_store()
    assert own_site.run(run_id) == before
    assert [row["path"] for row in own_site.get(f"/api/v1/runs/{run_id}")["artifacts"]] == ["artifacts/a.txt"]


def test_two_datasets_of_one_name_are_two(site: Site) -> None:
    run_id = site.begin()
    for digest in ("one", "two"):
        dataset = {"name": "d", "digest": digest, "source_type": "local", "source": "x"}
        site.mlflow("POST", "runs/log-inputs", {"run_id": run_id, "datasets": [{"dataset": dataset}]})
    assert {row["dataset"]["digest"] for row in site.run(run_id)["inputs"]["dataset_inputs"]} == {"one", "two"}


# beginnings and ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status"), [("FINISHED", "succeeded"), ("FAILED", "failed"), ("KILLED", "stopped"), (3, "succeeded")]
)
def test_the_end_that_a_client_says_is_the_runs(site: Site, said: Any, status: str) -> None:
    began = round(time.time() * 1000) - 10_000
    run_id, ended = site.begin(start_time=began), began + 5000
    info = site.mlflow("POST", "runs/update", {"run_id": run_id, "status": said, "end_time": ended})["run_info"]
    assert site.stored(run_id).status == status
    assert info["status"] == (said if isinstance(said, str) else "FINISHED")
    assert abs(info["end_time"] - ended) <= 1
    assert info["end_time"] - info["start_time"] == pytest.approx(5000, abs=2)


def test_a_run_that_is_over_may_go_on(site: Site) -> None:
    run_id = site.begin()
    metric(site, run_id, "m", 1.0, step=1)
    site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "FINISHED"})
    again = site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "RUNNING"})["run_info"]
    assert (again["status"], site.stored(run_id).attempt) == ("RUNNING", 2)
    metric(site, run_id, "m", 2.0, step=2)
    assert (site.attempt(run_id, number=2) / "mlflow.points").exists()
    assert history(site, run_id, "m") == [(1, 1.0), (2, 2.0)]
    site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "FAILED"})
    assert site.run(run_id)["info"]["status"] == "FAILED"
    with Store.open(site.home.path) as store:
        statuses = [change.status for change in store.statuses(run_id)]
    assert statuses == ["created", "running", "succeeded", "resuming", "running", "failed"]


def test_a_deleted_run_is_out_of_sight_until_it_is_restored(site: Site) -> None:
    key = experiment(site, "of deleted runs")
    run_id = site.begin(key)
    site.mlflow("POST", "runs/delete", {"run_id": run_id})
    assert site.run(run_id)["info"]["lifecycle_stage"] == "deleted"
    search = {"experiment_ids": [key]}
    assert (
        "runs" not in site.mlflow("POST", "runs/search", search)
        or not site.mlflow("POST", "runs/search", search)["runs"]
    )
    assert len(site.mlflow("POST", "runs/search", {**search, "run_view_type": "DELETED_ONLY"})["runs"]) == 1
    assert len(site.mlflow("POST", "runs/search", {**search, "run_view_type": "ALL"})["runs"]) == 1
    for path in ("runs/log-metric", "runs/log-parameter", "runs/set-tag"):
        assert "active" in refused(site, "POST", path, {"run_id": run_id, "key": "k", "value": "1", "timestamp": 1})
    site.mlflow("POST", "runs/restore", {"run_id": run_id})
    metric(site, run_id, "m", 1.0)
    assert len(site.mlflow("POST", "runs/search", search)["runs"]) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        key
        for key in CALLS
        if key[1].startswith(("runs/", "metrics/", "artifacts/")) and key[1] not in ("runs/create", "runs/search")
    ],
)
def test_a_run_that_is_not_there_is_reported(site: Site, method: str, path: str) -> None:
    fields = {
        "run_id": "nothing",
        "run_ids": ["nothing"],
        "key": "k",
        "value": "1",
        "timestamp": 1,
        "metric_key": "m",
        "model_json": "{}",
    }
    refused(site, method, path, fields, "RESOURCE_DOES_NOT_EXIST")
    if path not in ("metrics/get-history-bulk", "metrics/get-history-bulk-interval"):
        refused(site, method, path, {})


# hostile requests ---------------------------------------------------------------------------------------------------

ODD_VALUES: list[Any] = [
    None,
    "",
    " ",
    0,
    -1,
    2**70,
    1.5,
    True,
    [],
    {},
    ["x"],
    {"a": 1},
    "x" * 30_000,
    "\x00",
    "'\"`;--",
    "../..",
    [[]],
    [None],
    [{"key": None}],
]
FIELDS = (
    *(
        "experiment_id",
        "experiment_name",
        "name",
        "run_id",
        "key",
        "value",
        "timestamp",
        "step",
        "metrics",
        "params",
        "tags",
    ),
    *(
        "filter",
        "order_by",
        "max_results",
        "page_token",
        "view_type",
        "run_view_type",
        "status",
        "end_time",
        "start_time",
    ),
    *(
        "experiment_ids",
        "path",
        "metric_key",
        "datasets",
        "models",
        "model_json",
        "version",
        "alias",
        "stage",
        "source",
    ),
    *(
        "run_ids",
        "stages",
        "new_name",
        "description",
        "artifact_location",
        "user_id",
        "source_run_id",
        "model_type",
        "run_name",
    ),
)


@pytest.mark.parametrize("odd", ODD_VALUES, ids=lambda odd: repr(odd)[:20])
def test_no_odd_value_breaks_any_call(site: Site, odd: Any) -> None:
    """Asked without the network, which only makes it slow: whatever is raised must be a refusal."""
    run_id = site.begin()
    me = Identity("tester", {"*": Role.ADMIN})
    sane = {
        "experiment_id": "0",
        "run_id": run_id,
        "key": "k",
        "value": "1",
        "timestamp": 1,
        "name": "n",
        "metric_key": "k",
    }
    for (_, path), entry in CALLS.items():
        for fields in (dict.fromkeys(FIELDS, odd), {**dict.fromkeys(FIELDS, odd), **sane}):
            steps = ("m-x",) * path.count("*")
            with suppress(MlflowError, RequestError, CallError):
                json.dumps(entry.handler(Call(site.context, me, fields, None, steps)))
    assert site.run(run_id)["info"]["run_id"] == run_id


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"x"', b"\xff", b"{" * 5000, b'{"a":1}{"b":2}'])
def test_a_body_that_is_no_object_is_refused(site: Site, body: bytes) -> None:
    answer = site.ask("POST", f"{API}/runs/log-metric", content=body)
    assert answer.status_code == 400
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"


@pytest.mark.parametrize("path", ["traces", "traces/search", "gateway/endpoints/list", "scorers/list", "workspaces"])
def test_what_is_not_supported_is_reported(site: Site, path: str) -> None:
    answer = site.mlflow_answer("POST", path, {})
    assert (answer.status_code, answer.json()["error_code"]) == (501, "NOT_IMPLEMENTED")
    assert "not supported" in answer.json()["message"]


def test_other_addresses_are_reported(site: Site) -> None:
    for path in ("", "runs", "runs/nothing", "runs/create/x", "logged-models/a/b/c/d/e"):
        answer = site.mlflow_answer("POST", path, {})
        assert (answer.status_code, answer.json()["error_code"]) == (404, "ENDPOINT_NOT_FOUND"), path
    assert site.ask("GET", "/version").text == "3.0.0"
    assert site.ask("GET", "/health").text == "OK"
    assert site.get("/api/3.0/mlflow/server-info")["workspaces_enabled"] is False
    assert site.get("/ajax-api/2.0/mlflow/experiments/get", experiment_id="0")["experiment"]["experiment_id"] == "0"


def test_a_run_that_is_removed_meanwhile_is_reported(site: Site) -> None:
    run_id = site.begin()
    metric(site, run_id, "m", 1.0)
    site.mlflow("POST", "runs/update", {"run_id": run_id, "status": "FINISHED"})
    with Store.open(site.home.path) as store:
        site.folder(run_id).rename(site.folder(run_id).with_name(f".removed-{run_id}"))
        store.delete(run_id)
    refused(
        site,
        "POST",
        "runs/log-metric",
        {"run_id": run_id, "key": "m", "value": 1, "timestamp": 1},
        "RESOURCE_DOES_NOT_EXIST",
    )
    assert not site.folder(run_id).exists()


def test_events_are_records_of_the_house(site: Site) -> None:
    run_id = site.begin()
    site.mlflow("POST", "runs/log-parameter", {"run_id": run_id, "key": "lr", "value": "0.1"})
    site.mlflow("POST", "runs/set-tag", {"run_id": run_id, "key": "mlflow.note.content", "value": "d"})
    events = [record.data() for record in read(site.attempt(run_id) / "mlflow.events")]
    assert [{key: value for key, value in event.items() if key != "at"} for event in events] == [
        {"kind": "params", "values": {"lr": "0.1"}},
        {"kind": "describe", "description": "d"},
    ]
    assert json.dumps(events)
