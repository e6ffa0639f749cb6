from __future__ import annotations

import math
import time
from typing import Any

import pytest

from tests.mlflow_client.conftest import Served


def test_a_run_is_logged_and_read_back(mlflow: Any, client: Any, experiment: str) -> None:
    with mlflow.start_run(run_name="first", description="about it", tags={"team": "blue"}) as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_params({"opt": "adam", "deep": {"a": 1}})
        mlflow.log_metric("loss", 1.5)
        for step in range(10):
            mlflow.log_metrics({"acc": step / 10, "err": 1 - step / 10}, step=step)
        mlflow.set_tag("x", "1")
        assert client.get_run(run.info.run_id).info.status == "RUNNING"
    found = client.get_run(run.info.run_id)
    assert (found.info.status, found.info.run_name, found.info.experiment_id) == ("FINISHED", "first", experiment)
    assert found.data.params == {"lr": "0.1", "opt": "adam", "deep": "{'a': 1}"}
    assert found.data.metrics == {"loss": 1.5, "acc": 0.9, "err": pytest.approx(0.1)}
    assert (found.data.tags["team"], found.data.tags["x"]) == ("blue", "1")
    assert found.data.tags["mlflow.note.content"] == "about it"
    assert found.info.end_time >= found.info.start_time > 1.6e12
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "acc")] == [
        (n, n / 10) for n in range(10)
    ]


def test_phalanx_shows_the_run_too(mlflow: Any, experiment: str, served: Served) -> None:
    with mlflow.start_run(run_name="shown") as run:
        mlflow.log_param("lr", 0.25)
        mlflow.log_metric("loss", 0.5, step=7)
    shown = served.phalanx("show", run.info.run_id)
    assert (shown["name"], shown["status"], shown["params"]) == ("shown", "succeeded", {"lr": "0.25"})
    assert shown["summary"] == {"loss": 0.5}
    listed = served.phalanx("ps", "-q", "params.lr:<0.3, metric.loss:0.5")
    assert run.info.run_id in [row["id"] for row in listed["runs"]]
    assert (served.folder(run.info.run_id) / "replicas" / "master-0" / "attempt-1").is_dir()


def test_odd_values_come_back(mlflow: Any, client: Any, experiment: str) -> None:
    with mlflow.start_run() as run:
        mlflow.log_metrics({"nan": math.nan, "inf": math.inf, "minus": -math.inf, "tiny": 5e-324, "huge": 1e308})
    found = client.get_run(run.info.run_id).data.metrics
    assert math.isnan(found["nan"])
    assert (found["inf"], found["minus"], found["tiny"], found["huge"]) == (math.inf, -math.inf, 5e-324, 1e308)
    (point,) = client.get_metric_history(run.info.run_id, "nan")
    assert math.isnan(point.value)


def test_a_history_of_more_than_a_page(mlflow: Any, client: Any, experiment: str) -> None:
    entities = __import__("mlflow.entities", fromlist=["Metric"])
    now = int(time.time() * 1000)
    with mlflow.start_run() as run:
        for start in range(0, 26_500, 1000):
            points = [entities.Metric("m", float(n), now + n, n) for n in range(start, min(start + 1000, 26_500))]
            client.log_batch(run.info.run_id, metrics=points)
    found = client.get_metric_history(run.info.run_id, "m")
    assert [one.step for one in found] == list(range(26_500))
    assert found[-1].timestamp == now + 26_499


def test_a_failed_run_and_a_killed_one(mlflow: Any, client: Any, experiment: str) -> None:
    with pytest.raises(ZeroDivisionError), mlflow.start_run() as run:
        raise ZeroDivisionError
    assert client.get_run(run.info.run_id).info.status == "FAILED"
    killed = mlflow.start_run()
    mlflow.end_run("KILLED")
    assert client.get_run(killed.info.run_id).info.status == "KILLED"


def test_nested_runs(mlflow: Any, client: Any, experiment: str) -> None:
    with mlflow.start_run() as parent:
        for number in range(3):
            with mlflow.start_run(nested=True, run_name=f"child {number}"):
                mlflow.log_metric("m", number)
    children = client.search_runs(
        [experiment], f"tags.mlflow.parentRunId = '{parent.info.run_id}'", order_by=["metrics.m DESC"]
    )
    assert [child.info.run_name for child in children] == ["child 2", "child 1", "child 0"]


def test_a_run_that_goes_on(mlflow: Any, client: Any, experiment: str) -> None:
    with mlflow.start_run() as run:
        mlflow.log_metric("m", 1, step=1)
    with mlflow.start_run(run_id=run.info.run_id):
        assert client.get_run(run.info.run_id).info.status == "RUNNING"
        mlflow.log_metric("m", 2, step=2)
        mlflow.log_param("late", "yes")
    found = client.get_run(run.info.run_id)
    assert (found.info.status, found.data.metrics["m"], found.data.params["late"]) == ("FINISHED", 2.0, "yes")
    assert [one.value for one in client.get_metric_history(run.info.run_id, "m")] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("metrics.loss < 0.15", ["a", "b"]),
        ("metrics.loss >= 0.1 and params.opt = 'adam'", ["b"]),
        ("params.opt LIKE 's%'", ["a", "c"]),
        ("params.opt ILIKE 'SGD'", ["a", "c"]),
        ("tags.group != 'x'", ["b", "c"]),
        ("attributes.status = 'FINISHED' and attributes.run_name IN ('a', 'c')", ["a", "c"]),
        ("run_name = 'b'", ["b"]),
        ("params.`with space` = 'y'", ["a", "b", "c"]),
        ('metrics."val/acc" > 0.5', ["c"]),
    ],
)
def test_runs_are_searched(mlflow: Any, client: Any, text: str, names: list[str]) -> None:
    key = mlflow.set_experiment("searched").experiment_id
    if not client.search_runs([key]):
        for number, name in enumerate("abc"):
            with mlflow.start_run(run_name=name, tags={"group": "xyz"[number]}):
                mlflow.log_metrics({"loss": number / 10, "val/acc": number / 3})
                mlflow.log_params({"opt": "adam" if name == "b" else "sgd", "with space": "y"})
    found = client.search_runs([key], text, order_by=["attributes.start_time ASC"])
    assert [run.info.run_name for run in found] == names
    frame = mlflow.search_runs(experiment_names=["searched"], filter_string=text)
    assert sorted(frame["tags.mlflow.runName"]) == names


def test_a_search_goes_over_pages(mlflow: Any, client: Any, experiment: str) -> None:
    for number in range(7):
        client.create_run(experiment, run_name=f"r{number}", start_time=1_700_000_000_000 + number)
    names: list[str] = []
    token = None
    while True:
        page = client.search_runs([experiment], max_results=3, page_token=token)
        names += [run.info.run_name for run in page]
        token = page.token
        if not token:
            break
    assert names == [f"r{n}" for n in range(6, -1, -1)]


def test_experiments_are_made_renamed_deleted(mlflow: Any, client: Any) -> None:
    key = client.create_experiment("to be renamed", tags={"a": "b"})
    client.set_experiment_tag(key, "c", "d")
    client.rename_experiment(key, "renamed")
    found = client.get_experiment_by_name("renamed")
    assert (found.experiment_id, found.tags["a"], found.tags["c"]) == (key, "b", "d")
    with pytest.raises(mlflow.exceptions.MlflowException, match="already exists"):
        client.create_experiment("renamed")
    client.delete_experiment(key)
    assert client.get_experiment(key).lifecycle_stage == "deleted"
    assert "renamed" not in [one.name for one in client.search_experiments()]
    client.restore_experiment(key)
    assert "renamed" in [one.name for one in client.search_experiments(filter_string="name LIKE 'ren%'")]
    assert client.get_experiment_by_name("nothing of this name") is None


def test_runs_are_deleted_and_restored(mlflow: Any, client: Any, experiment: str) -> None:
    run = client.create_run(experiment)
    client.delete_run(run.info.run_id)
    assert client.search_runs([experiment]) == []
    client.restore_run(run.info.run_id)
    assert len(client.search_runs([experiment])) == 1
    client.set_tag(run.info.run_id, "k", "v")
    client.delete_tag(run.info.run_id, "k")
    assert "k" not in client.get_run(run.info.run_id).data.tags
    client.update_run(run.info.run_id, status="FINISHED", name="other")
    assert client.get_run(run.info.run_id).info.run_name == "other"


def test_a_param_does_not_change(mlflow: Any, experiment: str) -> None:
    with mlflow.start_run():
        mlflow.log_param("lr", 1)
        with pytest.raises(mlflow.exceptions.MlflowException, match="Changing param values is not allowed"):
            mlflow.log_param("lr", 2)


def test_what_is_not_there_is_an_error_of_mlflow(mlflow: Any, client: Any) -> None:
    with pytest.raises(mlflow.exceptions.MlflowException) as fault:
        client.get_run("nothing")
    assert fault.value.error_code == "RESOURCE_DOES_NOT_EXIST"


def test_a_wrong_token_is_an_error_of_mlflow(mlflow: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "wrong")
    with pytest.raises(mlflow.exceptions.MlflowException, match="token"):
        client.get_experiment("0")


def test_a_user_and_a_password_do_as_well(
    mlflow: Any, client: Any, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", served.token)
    assert client.get_experiment("0").name == "Default"


def test_datasets_are_logged(mlflow: Any, client: Any, experiment: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
    with mlflow.start_run() as run:
        mlflow.log_input(mlflow.data.from_pandas(frame, name="train set"), context="training")
        mlflow.log_input(mlflow.data.from_pandas(frame[:2], name="train set"), context="eval")
    found = client.get_run(run.info.run_id).inputs.dataset_inputs
    assert {one.dataset.name for one in found} == {"train set"}
    assert sorted(tag.value for one in found for tag in one.tags) == ["eval", "training"]


def test_asynchronous_logging(mlflow: Any, client: Any, experiment: str) -> None:
    with mlflow.start_run() as run:
        for step in range(200):
            mlflow.log_metric("m", step, step=step, synchronous=False)
        mlflow.flush_async_logging()
    assert len(client.get_metric_history(run.info.run_id, "m")) == 200
