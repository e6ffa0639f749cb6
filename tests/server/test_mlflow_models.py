"""MLflow's calls about logged models and the registry."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.site import Site, artifact


def logged(site: Site, run_id: str | None, name: str = "net", **more: Any) -> Any:
    fields = {"experiment_id": "0", "name": name, **({"source_run_id": run_id} if run_id else {}), **more}
    return site.mlflow("POST", "logged-models", fields)["model"]


def put(site: Site, uri: str, path: str, content: bytes = b"weights") -> None:
    base = uri.replace("mlflow-artifacts:/", "/api/2.0/mlflow-artifacts/artifacts/")
    assert site.ask("PUT", f"{base}/{path}", content=content).status_code == 200


def fetched(site: Site, uri: str, path: str) -> bytes:
    base = uri.replace("mlflow-artifacts:/", "/api/2.0/mlflow-artifacts/artifacts/")
    answer = site.ask("GET", f"{base}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.content


def registered(site: Site, name: str = "m", **more: Any) -> tuple[str, Any]:
    """A run with a model among its artifacts, registered."""
    run_id = site.begin()
    for path in ("model/MLmodel", "model/data/w.bin"):
        site.ask("PUT", artifact(run_id, path), content=path.encode())
    site.mlflow_answer("POST", "registered-models/create", {"name": name})
    source = f"mlflow-artifacts:/{run_id}/artifacts/model"
    fields = {"name": name, "source": source, "run_id": run_id, **more}
    return run_id, site.mlflow("POST", "model-versions/create", fields)["model_version"]


# logged models ------------------------------------------------------------------------------------------------------


def test_a_logged_model_keeps_its_files_with_the_run(site: Site) -> None:
    run_id = site.begin()
    params, tags = [{"key": "p", "value": "1"}], [{"key": "t", "value": "2"}]
    model = logged(site, run_id, params=params, tags=tags, model_type="classifier")
    info = model["info"]
    assert (info["status"], info["source_run_id"], info["experiment_id"]) == ("LOGGED_MODEL_PENDING", run_id, "0")
    put(site, info["artifact_uri"], "MLmodel")
    put(site, info["artifact_uri"], "data/w.bin", b"12345")
    ready = site.mlflow("PATCH", f"logged-models/{info['model_id']}", {"status": "LOGGED_MODEL_READY"})["model"]
    assert ready["info"]["status"] == "LOGGED_MODEL_READY"
    assert ready["data"]["params"] == params
    assert fetched(site, info["artifact_uri"], "data/w.bin") == b"12345"
    (kept,) = site.get(f"/api/v1/runs/{run_id}")["artifacts"]
    assert (kept["type"], kept["name"], kept["size"]) == ("model", "net", 12)
    files = site.mlflow("GET", f"logged-models/{info['model_id']}/artifacts/directories", {})["files"]
    assert [row["path"] for row in files] == ["MLmodel", "data"]
    site.mlflow("POST", "runs/outputs", {"run_id": run_id, "models": [{"model_id": info["model_id"], "step": 3}]})
    assert site.run(run_id)["outputs"]["model_outputs"] == [{"model_id": info["model_id"], "step": 3}]
    assert not [key for key in site.tags(run_id) if key.startswith("phalanx.mlflow")]


def test_a_model_of_no_run_gets_one_that_ends_with_it(site: Site) -> None:
    model = logged(site, None, "alone")
    run_id = model["info"]["artifact_uri"].split("/")[1]
    assert (site.stored(run_id).name, site.stored(run_id).status) == ("alone", "running")
    assert "source_run_id" not in model["info"]
    site.mlflow("PATCH", f"logged-models/{model['info']['model_id']}", {"status": 2})
    assert site.stored(run_id).status == "succeeded"


def test_tags_params_and_metrics_of_a_logged_model(site: Site) -> None:
    run_id = site.begin()
    model_id = logged(site, run_id)["info"]["model_id"]
    site.mlflow(
        "PATCH", f"logged-models/{model_id}/tags", {"tags": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]}
    )
    site.mlflow("DELETE", f"logged-models/{model_id}/tags/a")
    assert site.mlflow_answer("DELETE", f"logged-models/{model_id}/tags/a").status_code == 404
    site.mlflow("POST", f"logged-models/{model_id}/params", {"params": [{"key": "p", "value": "9"}]})
    about = {"run_id": run_id, "key": "acc", "timestamp": 5, "model_id": model_id}
    site.mlflow("POST", "runs/log-metric", {**about, "value": 0.5})
    site.mlflow("POST", "runs/log-metric", {**about, "value": 0.7, "dataset_name": "d", "dataset_digest": "x"})
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "metrics": [{**about, "value": 0.9, "step": 2}]})
    model = site.mlflow("GET", f"logged-models/{model_id}")["model"]
    assert model["info"]["tags"] == [{"key": "b", "value": "2"}]
    assert model["data"]["params"] == [{"key": "p", "value": "9"}]
    assert [(row["value"], row.get("dataset_name")) for row in model["data"]["metrics"]] == [(0.9, None), (0.7, "d")]
    assert site.run(run_id)["data"]["metrics"][0]["value"] == 0.9


def test_logged_models_are_searched(own_site: Site) -> None:
    run_id = own_site.begin()
    for number in range(4):
        model = logged(own_site, run_id, f"net-{number}", params=[{"key": "n", "value": str(number)}])
        about = {"run_id": run_id, "key": "acc", "timestamp": 5, "model_id": model["info"]["model_id"]}
        own_site.mlflow("POST", "runs/log-metric", {**about, "value": number / 10})
    gone = logged(own_site, run_id, "gone")["info"]["model_id"]
    own_site.mlflow("DELETE", f"logged-models/{gone}")

    def names(text: str = "", **more: Any) -> list[str]:
        fields = {"experiment_ids": ["0"], "filter": text, **more}
        return [model["info"]["name"] for model in own_site.mlflow("POST", "logged-models/search", fields)["models"]]

    assert set(names()) == {f"net-{n}" for n in range(4)}
    assert names("metrics.acc > 0.15 AND params.n != '3'") == ["net-2"]
    assert names("name LIKE 'net-%' AND source_run_id = '" + run_id + "'", max_results=2) != []
    order = [{"field_name": "metrics.acc", "ascending": False}]
    assert names(order_by=order) == ["net-3", "net-2", "net-1", "net-0"]
    assert own_site.mlflow_answer("GET", f"logged-models/{gone}").status_code == 404
    assert own_site.mlflow("GET", f"logged-models/{gone}", {"allow_deleted": "true"})["model"]["info"]["name"] == "gone"
    bad = {"experiment_ids": ["0"], "filter": "nothing = 'x'"}
    assert own_site.mlflow_answer("POST", "logged-models/search", bad).status_code == 400


@pytest.mark.slow
def test_logged_models_are_searched_by_the_datasets_they_were_measured_on(own_site: Site) -> None:
    run_id = own_site.begin()
    for name, measured in {"a": {"train": 0.9, "test": 0.1}, "b": {"train": 0.5, "test": 0.6}, "c": {"": 1.0}}.items():
        about = {"run_id": run_id, "key": "acc", "model_id": logged(own_site, run_id, name)["info"]["model_id"]}
        for at, (dataset, value) in enumerate(measured.items()):
            of = {"dataset_name": dataset, "dataset_digest": f"{dataset}-1"} if dataset else {}
            own_site.mlflow("POST", "runs/log-metric", {**about, **of, "value": value, "timestamp": 9 - at})

    def names(text: str = "", **more: Any) -> list[str]:
        fields = {"experiment_ids": ["0"], "filter": text, **more}
        found = own_site.mlflow("POST", "logged-models/search", fields)["models"]
        return [model["info"]["name"] for model in found]

    test = [{"dataset_name": "test", "dataset_digest": "test-1"}]
    assert set(names(datasets=test)) == {"a", "b"}
    assert names(datasets=[{"dataset_name": "test", "dataset_digest": "other"}]) == []
    assert set(names("metrics.acc > 0.4")) == {"a", "b", "c"}
    assert names("metrics.acc > 0.4", datasets=test) == ["b"]
    assert names(order_by=[{"field_name": "metrics.acc"}]) == ["b", "a", "c"]
    assert names(order_by=[{"field_name": "metrics.acc", "dataset_name": "test"}]) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["a/b", "../x", "a:b", "a.b", "a%b", "it's", "a\nb", "x" * 251])
def test_a_name_that_mlflow_forbids_is_refused(site: Site, name: str) -> None:
    fields = {"experiment_id": "0", "name": name, "source_run_id": site.begin()}
    assert site.mlflow_answer("POST", "logged-models", fields).status_code == 400


@pytest.mark.parametrize("name", ["ünï ☃", "~", "-", "#?&", " ", "con"])
def test_a_name_of_any_other_kind_has_a_place(site: Site, name: str) -> None:
    info = logged(site, site.begin(), name)["info"]
    put(site, info["artifact_uri"], "x", b"1")
    assert fetched(site, info["artifact_uri"], "x") == b"1"


@pytest.mark.parametrize(
    "model_id",
    ["m-x", "m-..-0123456789abcdef", "m-../../x-0123456789abcdef", "x", "%2e%2e", "m-nothingher-0123456789abcdef"],
)
def test_ids_that_lead_elsewhere_lead_nowhere(site: Site, model_id: str) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        answer = site.mlflow_answer(method, f"logged-models/{model_id}", {"status": 2})
        assert answer.status_code == 404, answer.text


# the registry -------------------------------------------------------------------------------------------------------


def test_a_version_is_registered_and_its_files_stay(own_site: Site) -> None:
    run_id, version = registered(own_site, tags=[{"key": "t", "value": "1"}], description="first")
    assert (version["version"], version["run_id"], version["status"], version["description"]) == (
        "1",
        run_id,
        "READY",
        "first",
    )
    assert version["source"] == f"mlflow-artifacts:/{run_id}/artifacts/model"
    assert version["tags"] == [{"key": "t", "value": "1"}]
    uri = own_site.mlflow("GET", "model-versions/get-download-uri", {"name": "m", "version": "1"})["artifact_uri"]
    own_site.ask("DELETE", artifact(run_id, "model"))
    assert fetched(own_site, uri, "data/w.bin") == b"model/data/w.bin"
    listed = own_site.get("/api/2.0/mlflow-artifacts/artifacts", path=uri.removeprefix("mlflow-artifacts:/"))["files"]
    assert [row["path"] for row in listed] == ["MLmodel", "data"]
    base = uri.replace("mlflow-artifacts:/", "/api/2.0/mlflow-artifacts/artifacts/")
    assert own_site.ask("PUT", f"{base}/MLmodel", content=b"evil").status_code == 403
    assert own_site.ask("DELETE", f"{base}/MLmodel").status_code == 403
    assert own_site.get("/api/v1/models")["models"][0]["name"] == "m"
    assert own_site.get("/api/v1/models/m")["versions"][0]["run_id"] == run_id


def test_a_logged_model_is_registered_by_its_id(own_site: Site) -> None:
    run_id = own_site.begin()
    info = logged(own_site, run_id)["info"]
    put(own_site, info["artifact_uri"], "MLmodel")
    own_site.mlflow("POST", "registered-models/create", {"name": "m"})
    source = {"source": f"models:/{info['model_id']}", "model_id": info["model_id"]}
    version = own_site.mlflow("POST", "model-versions/create", {"name": "m", **source})["model_version"]
    assert (version["model_id"], version["run_id"]) == (info["model_id"], run_id)
    uri = own_site.mlflow("GET", "model-versions/get-download-uri", {"name": "m", "version": "1"})["artifact_uri"]
    assert fetched(own_site, uri, "MLmodel") == b"weights"
    model = own_site.mlflow("GET", f"logged-models/{info['model_id']}")["model"]
    assert model["info"]["registrations"] == [{"name": "m", "version": "1"}]
    own_site.mlflow("POST", "registered-models/create", {"name": "copy"})
    copied = own_site.mlflow("POST", "model-versions/create", {"name": "copy", "source": "models:/m/1"})[
        "model_version"
    ]
    assert copied["run_id"] == run_id


def test_aliases_point_at_versions(own_site: Site) -> None:
    registered(own_site)
    registered(own_site)
    own_site.mlflow("POST", "registered-models/alias", {"name": "m", "alias": "champion", "version": "1"})
    own_site.mlflow("POST", "registered-models/alias", {"name": "m", "alias": "champion", "version": "2"})
    found = own_site.mlflow("GET", "registered-models/alias", {"name": "m", "alias": "champion"})["model_version"]
    assert (found["version"], found["aliases"]) == ("2", ["champion"])
    model = own_site.mlflow("GET", "registered-models/get", {"name": "m"})["registered_model"]
    assert model["aliases"] == [{"alias": "champion", "version": "2"}]
    own_site.mlflow("DELETE", "registered-models/alias", {"name": "m", "alias": "champion"})
    assert (
        own_site.mlflow_answer("GET", "registered-models/alias", {"name": "m", "alias": "champion"}).status_code == 400
    )


def test_stages_are_kept_and_others_archived(own_site: Site) -> None:
    registered(own_site)
    registered(own_site)
    move = {"name": "m", "stage": "production", "archive_existing_versions": True}
    own_site.mlflow("POST", "model-versions/transition-stage", {**move, "version": "1"})
    moved = own_site.mlflow("POST", "model-versions/transition-stage", {**move, "version": "2"})["model_version"]
    assert (moved["current_stage"], moved["tags"]) == ("Production", [])
    first = own_site.mlflow("GET", "model-versions/get", {"name": "m", "version": "1"})["model_version"]
    assert first["current_stage"] == "Archived"
    newest = own_site.mlflow("POST", "registered-models/get-latest-versions", {"name": "m", "stages": ["Production"]})
    assert [row["version"] for row in newest["model_versions"]] == ["2"]
    wrong = {"name": "m", "version": "1", "stage": "Limbo"}
    assert own_site.mlflow_answer("POST", "model-versions/transition-stage", wrong).status_code == 400


def test_models_and_versions_are_searched(own_site: Site) -> None:
    run_id, _ = registered(own_site, "alpha", tags=[{"key": "k", "value": "v"}])
    registered(own_site, "alpha")
    registered(own_site, "Beta")
    own_site.mlflow("POST", "registered-models/set-tag", {"name": "alpha", "key": "team", "value": "blue"})

    def models(text: str, **more: Any) -> list[str]:
        answer = own_site.mlflow("GET", "registered-models/search", {"filter": text, **more})
        return [row["name"] for row in answer["registered_models"]]

    def versions(text: str) -> list[str]:
        rows = own_site.mlflow("GET", "model-versions/search", {"filter": text})["model_versions"]
        return [f"{row['name']}/{row['version']}" for row in rows]

    assert models("", order_by="name DESC") == ["alpha", "Beta"]
    assert models("name LIKE 'b%'") == []
    assert models("name ILIKE 'b%'") == ["Beta"]
    assert models("tags.team = 'blue'") == ["alpha"]
    assert models("name = 'alpha' AND tags.`mlflow.prompt.is_prompt` != 'true'") == ["alpha"], "as clients ask"
    assert sorted(versions("name = 'alpha'")) == ["alpha/1", "alpha/2"]
    assert versions(f"run_id = '{run_id}'") == ["alpha/1"]
    assert versions("tags.k = 'v'") == ["alpha/1"]
    assert versions("name = 'alpha' AND version_number = 2") == ["alpha/2"]


def test_models_are_described_tagged_and_deleted(own_site: Site) -> None:
    registered(own_site)
    own_site.mlflow("PATCH", "registered-models/update", {"name": "m", "description": "about"})
    own_site.mlflow("PATCH", "model-versions/update", {"name": "m", "version": "1", "description": "v"})
    own_site.mlflow("POST", "model-versions/set-tag", {"name": "m", "version": "1", "key": "a", "value": "b"})
    model = own_site.mlflow("GET", "registered-models/get", {"name": "m"})["registered_model"]
    assert (model["description"], model["latest_versions"][0]["description"]) == ("about", "v")
    assert model["latest_versions"][0]["tags"] == [{"key": "a", "value": "b"}]
    own_site.mlflow("DELETE", "model-versions/delete-tag", {"name": "m", "version": "1", "key": "a"})
    own_site.mlflow("POST", "registered-models/alias", {"name": "m", "alias": "x", "version": "1"})
    own_site.mlflow("DELETE", "model-versions/delete", {"name": "m", "version": "1"})
    assert own_site.mlflow_answer("GET", "model-versions/get", {"name": "m", "version": "1"}).status_code == 404
    own_site.mlflow("DELETE", "registered-models/delete", {"name": "m"})
    assert own_site.mlflow_answer("GET", "registered-models/get", {"name": "m"}).status_code == 404
    again = own_site.mlflow_answer("POST", "registered-models/rename", {"name": "m", "new_name": "n"})
    assert again.status_code == 404


def test_a_name_is_taken_once(own_site: Site) -> None:
    own_site.mlflow("POST", "registered-models/create", {"name": "m"})
    answer = own_site.mlflow_answer("POST", "registered-models/create", {"name": "m"})
    assert answer.json()["error_code"] == "RESOURCE_ALREADY_EXISTS"
    renamed = own_site.mlflow_answer("POST", "registered-models/rename", {"name": "m", "new_name": "n"})
    assert (renamed.status_code, renamed.json()["error_code"]) == (501, "NOT_IMPLEMENTED")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a:b", "x" * 301, "\n"])
def test_what_is_no_name_of_a_model_is_refused(site: Site, name: str) -> None:
    assert site.mlflow_answer("POST", "registered-models/create", {"name": name}).status_code == 400


@pytest.mark.parametrize(
    "source",
    [
        "",
        "/etc/passwd",
        "file:///etc",
        "../../x",
        "mlflow-artifacts:/nothing/artifacts/x",
        "mlflow-artifacts:/{run}/artifacts/nothing",
        "mlflow-artifacts:/{run}/artifacts/../../../token",
        "mlflow-artifacts:/{run}/outputs/../run.json",
        "runs:/{run}/nothing",
        "runs:/{run}/../../x",
        "models:/nothing/1",
        "models:/m-x",
        "models:/",
        "s3://key:secret@bucket/x",
    ],
)
def test_a_source_that_is_none_is_refused(site: Site, source: str) -> None:
    run_id = site.begin()
    site.mlflow_answer("POST", "registered-models/create", {"name": "sourceless"})
    fields = {"name": "sourceless", "source": source.format(run=run_id), "run_id": run_id}
    assert site.mlflow_answer("POST", "model-versions/create", fields).status_code in (400, 404)
    assert site.mlflow("GET", "model-versions/search", {"filter": "name = 'sourceless'"})["model_versions"] == []


def test_a_logged_model_without_files_has_versions(site: Site) -> None:
    run_id = site.begin()
    info = logged(site, run_id, "remote")["info"]
    site.mlflow("PATCH", f"logged-models/{info['model_id']}", {"status": 2})
    site.mlflow("POST", "registered-models/create", {"name": "fileless"})
    fields = {"name": "fileless", "source": f"models:/{info['model_id']}", "model_id": info["model_id"]}
    version = site.mlflow("POST", "model-versions/create", fields)["model_version"]
    assert (version["source"], version["run_id"]) == (info["artifact_uri"], run_id)
    model = site.mlflow("GET", f"logged-models/{info['model_id']}")["model"]
    assert model["info"]["registrations"] == [{"name": "fileless", "version": "1"}]
    uri = site.mlflow("GET", "model-versions/get-download-uri", {"name": "fileless", "version": "1"})
    assert uri == {"artifact_uri": info["artifact_uri"]}


def test_a_version_may_name_a_run_of_another_server(own_site: Site) -> None:
    own_site.mlflow("POST", "registered-models/create", {"name": "m"})
    fields = {"name": "m", "source": "runs:/elsewhere1/model", "run_id": "elsewhere1"}
    version = own_site.mlflow("POST", "model-versions/create", fields)["model_version"]
    assert (version["source"], version["run_id"], version["tags"]) == ("runs:/elsewhere1/model", "elsewhere1", [])
    found = own_site.mlflow("GET", "model-versions/search", {"filter": "run_id = 'elsewhere1'"})["model_versions"]
    assert [row["version"] for row in found] == ["1"]


def test_prompts_are_refused_before_anything_is_stored(site: Site) -> None:
    fields = {"name": "greeting", "tags": [{"key": "mlflow.prompt.is_prompt", "value": "true"}]}
    answer = site.mlflow_answer("POST", "registered-models/create", fields)
    assert (answer.status_code, answer.json()["error_code"]) == (501, "NOT_IMPLEMENTED")
    assert "Prompts are not supported" in answer.json()["message"]
    assert site.mlflow_answer("GET", "registered-models/get", {"name": "greeting"}).status_code == 404


def test_a_source_elsewhere_is_kept_as_an_address(own_site: Site) -> None:
    own_site.mlflow("POST", "registered-models/create", {"name": "m"})
    fields = {"name": "m", "source": "s3://bucket/model"}
    assert own_site.mlflow("POST", "model-versions/create", fields)["model_version"]["source"] == "s3://bucket/model"
    uri = own_site.mlflow("GET", "model-versions/get-download-uri", {"name": "m", "version": "1"})["artifact_uri"]
    assert uri == "s3://bucket/model"
