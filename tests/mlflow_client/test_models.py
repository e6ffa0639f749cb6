from __future__ import annotations

from typing import Any

import pytest

from tests.mlflow_client.conftest import Served, is_3

sklearn = pytest.importorskip("sklearn")


def fitted() -> tuple[Any, Any, Any]:
    from sklearn.datasets import make_classification  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-not-found,import-untyped,unused-ignore]

    x, y = make_classification(n_samples=60, n_features=4, random_state=0)
    return LogisticRegression(max_iter=200).fit(x, y), x, y


def log_model(mlflow: Any, model: Any, name: str, **more: Any) -> Any:
    return mlflow.sklearn.log_model(model, **{"name" if is_3(mlflow) else "artifact_path": name}, **more)


def test_autologging_of_scikit_learn(mlflow: Any, client: Any, experiment: str) -> None:
    mlflow.sklearn.autolog(silent=True)
    try:
        with mlflow.start_run() as run:
            fitted()
    finally:
        mlflow.sklearn.autolog(disable=True, silent=True)
    found = client.get_run(run.info.run_id)
    assert found.data.params["max_iter"] == "200"
    assert found.data.metrics["training_accuracy_score"] > 0.5
    assert found.data.tags["estimator_name"] == "LogisticRegression"
    paths = [one.path for one in client.list_artifacts(run.info.run_id)]
    assert "estimator.html" in paths
    if is_3(mlflow):
        (model,) = mlflow.search_logged_models(experiment_ids=[experiment], output_format="list")
        assert model.source_run_id == run.info.run_id
        assert [one.model_id for one in client.get_run(run.info.run_id).outputs.model_outputs] == [model.model_id]
        assert "training_accuracy_score" in [metric.key for metric in model.metrics]
    else:
        assert "model" in paths


def test_a_model_is_logged_and_loaded(mlflow: Any, experiment: str) -> None:
    model, x, _ = fitted()
    with mlflow.start_run() as run:
        info = log_model(mlflow, model, "net", input_example=x[:2])
    loaded = mlflow.sklearn.load_model(info.model_uri)
    assert (loaded.predict(x) == model.predict(x)).all()
    again = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/net")
    assert (again.predict(x) == model.predict(x)).all()


def test_points_that_the_client_sends_again_with_a_model_count_once(
    mlflow: Any, client: Any, experiment: str, served: Served
) -> None:
    model, _, _ = fitted()
    with mlflow.start_run() as run:
        for step in range(10):
            mlflow.log_metric("loss", 10.0 - step, step=step)
        log_model(mlflow, model, "net")
        for step in (1, 5, 3):
            mlflow.log_metric("acc", step, step=step)
        run_id = run.info.run_id
        assert client.get_run(run_id).data.metrics == {"loss": 1.0, "acc": 5.0}
    assert len(client.get_metric_history(run_id, "loss")) == 10
    assert client.get_run(run_id).data.metrics == {"loss": 1.0, "acc": 5.0}
    assert [one.info.run_id for one in client.search_runs([experiment], "metrics.acc = 5 and metrics.loss = 1")] == [
        run_id
    ]
    metrics = {one["name"]: one["summary"] for one in served.phalanx("metrics", run_id)["metrics"]}
    assert {name: (one["last"], one["count"]) for name, one in metrics.items()} == {"loss": (1.0, 10), "acc": (5.0, 3)}
    assert [row["id"] for row in served.phalanx("ps", "-q", "metric.acc:5, min.acc:1, max.loss:10")["runs"]] == [run_id]


def test_a_model_is_registered_and_loaded_by_alias(mlflow: Any, client: Any, experiment: str) -> None:
    model, x, _ = fitted()
    with mlflow.start_run() as run:
        log_model(mlflow, model, "net", registered_model_name="a model")
        mlflow.log_metric("acc", 0.9)
    version = mlflow.register_model(f"runs:/{run.info.run_id}/net", "a model", tags={"t": "1"})
    assert (version.name, version.version, version.status) == ("a model", type(version.version)(2), "READY")
    client.set_registered_model_alias("a model", "champion", 2)
    assert str(client.get_model_version_by_alias("a model", "champion").version) == "2"
    loaded = mlflow.pyfunc.load_model("models:/a model@champion")
    assert (loaded.predict(x) == model.predict(x)).all()
    assert mlflow.sklearn.load_model("models:/a model/1") is not None
    assert mlflow.sklearn.load_model("models:/a model/latest") is not None
    client.set_model_version_tag("a model", "2", "k", "v")
    client.update_model_version("a model", "2", description="good")
    found = client.get_model_version("a model", "2")
    assert (found.tags["k"], found.tags["t"], found.description, found.run_id) == ("v", "1", "good", run.info.run_id)
    assert found.aliases == ["champion"]
    assert sorted(str(one.version) for one in client.search_model_versions("name = 'a model'")) == ["1", "2"]
    assert [one.name for one in client.search_registered_models("name LIKE 'a mod%'")] == ["a model"]
    client.transition_model_version_stage("a model", "2", "Production")
    assert [str(one.version) for one in client.get_latest_versions("a model", ["Production"])] == ["2"]
    copied = client.copy_model_version("models:/a model/2", "a copy")
    assert (copied.name, str(copied.version)) == ("a copy", "1")
    client.delete_registered_model_alias("a model", "champion")
    client.delete_model_version("a model", "2")
    client.delete_registered_model("a copy")
    assert [one.name for one in client.search_registered_models()] == ["a model"]
    client.delete_registered_model("a model")
    with pytest.raises(mlflow.exceptions.MlflowException, match="not found"):
        client.get_registered_model("a model")


def test_logged_models_of_mlflow_3(mlflow: Any, client: Any, experiment: str) -> None:
    if not is_3(mlflow):
        pytest.skip("MLflow 3 logs models by themselves")
    model, x, _ = fitted()
    info = log_model(mlflow, model, "alone", params={"depth": 3}, tags={"stage": "dev"})
    found = mlflow.get_logged_model(info.model_id)
    assert (found.name, found.params["depth"], found.tags["stage"], found.status.value) == (
        "alone",
        "3",
        "dev",
        "READY",
    )
    mlflow.log_metric("acc", 0.75, model_id=info.model_id)
    mlflow.end_run()
    assert [metric.value for metric in mlflow.get_logged_model(info.model_id).metrics] == [0.75]
    mlflow.set_logged_model_tags(info.model_id, {"more": "1"})
    assert mlflow.get_logged_model(info.model_id).tags["more"] == "1"
    matching = mlflow.search_logged_models(
        experiment_ids=[experiment], filter_string="params.depth = '3'", output_format="list"
    )
    assert [one.model_id for one in matching] == [info.model_id]
    assert (mlflow.sklearn.load_model(f"models:/{info.model_id}").predict(x) == model.predict(x)).all()
    client.delete_logged_model(info.model_id)
    assert mlflow.search_logged_models(experiment_ids=[experiment], output_format="list") == []
