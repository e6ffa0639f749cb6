"""MLflow's calls about experiments."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.server.mlflow.experiment_table import ExperimentTable
from tests.server.site import Site, experiment, refused


def test_an_experiment_is_a_project(site: Site) -> None:
    key = experiment(site, "vision")
    run_id = site.begin(key)
    assert site.stored(run_id).project == "vision"
    assert site.run(run_id)["info"]["experiment_id"] == key
    assert (
        site.mlflow("GET", "experiments/get-by-name", {"experiment_name": "vision"})["experiment"]["experiment_id"]
        == key
    )


def test_a_project_is_an_experiment_whose_number_stays(site: Site) -> None:
    site.post("/api/v1/runs", {"project": "made by phalanx"}, 201)
    found = site.mlflow("GET", "experiments/get-by-name", {"experiment_name": "made by phalanx"})["experiment"]
    assert found["experiment_id"].isdecimal()
    site.context.experiments = ExperimentTable(site.home.path)  # as after a restart
    assert (
        site.mlflow("GET", "experiments/get", {"experiment_id": found["experiment_id"]})["experiment"]["name"]
        == "made by phalanx"
    )
    assert site.mlflow("GET", "experiments/get", {"experiment_id": "0"})["experiment"]["name"] == "Default"


@pytest.mark.parametrize("name", ["a/b", "../../x", "'; DROP TABLE runs", "ünï ☃", "a" * 500, "0", " x "])
def test_names_of_experiments_are_any(site: Site, name: str) -> None:
    key = experiment(site, name)
    run_id = site.begin(key)
    assert site.stored(run_id).project == name
    site.context.experiments = ExperimentTable(site.home.path)
    assert site.mlflow("GET", "experiments/get", {"experiment_id": key})["experiment"]["name"] == name


@pytest.mark.parametrize("name", ["", "   ", "a" * 501, None, 5.5, ["x"], {"a": 1}])
def test_what_is_no_name_of_an_experiment_is_refused(site: Site, name: Any) -> None:
    assert site.mlflow_answer("POST", "experiments/create", {"name": name}).status_code == 400


def test_an_experiment_is_renamed_deleted_and_brought_back(site: Site) -> None:
    key = experiment(site, "old", tags=[{"key": "a", "value": "1"}])
    run_id = site.begin(key)
    assert "already exists" in refused(site, "POST", "experiments/create", {"name": "old"}, "RESOURCE_ALREADY_EXISTS")
    site.mlflow("POST", "experiments/update", {"experiment_id": key, "new_name": "new"})
    refused(site, "GET", "experiments/get-by-name", {"experiment_name": "old"}, "RESOURCE_DOES_NOT_EXIST")
    assert (
        site.mlflow("GET", "experiments/get-by-name", {"experiment_name": "new"})["experiment"]["experiment_id"] == key
    )
    again = experiment(site, "old")
    assert again != key
    refused(site, "POST", "experiments/update", {"experiment_id": again, "new_name": "new"}, "RESOURCE_ALREADY_EXISTS")
    site.mlflow("POST", "experiments/delete", {"experiment_id": key})
    listed = [row["name"] for row in site.mlflow("POST", "experiments/search", {"max_results": 10})["experiments"]]
    assert "new" not in listed
    gone = site.mlflow("POST", "experiments/search", {"max_results": 10, "view_type": "DELETED_ONLY"})["experiments"]
    assert [row["name"] for row in gone] == ["new"]
    assert "deleted" in refused(site, "POST", "runs/create", {"experiment_id": key})
    site.mlflow("POST", "experiments/restore", {"experiment_id": key})
    assert site.run(run_id)["info"]["experiment_id"] == key
    site.mlflow("POST", "experiments/set-experiment-tag", {"experiment_id": key, "key": "b", "value": "2"})
    site.mlflow("POST", "experiments/delete-experiment-tag", {"experiment_id": key, "key": "a"})
    refused(
        site, "POST", "experiments/delete-experiment-tag", {"experiment_id": key, "key": "a"}, "RESOURCE_DOES_NOT_EXIST"
    )
    assert site.mlflow("GET", "experiments/get", {"experiment_id": key})["experiment"]["tags"] == [
        {"key": "b", "value": "2"}
    ]


def test_experiments_are_searched_and_paged(site: Site) -> None:
    for number in range(5):
        experiment(site, f"exp-{number}", tags=[{"key": "n", "value": str(number)}])

    def names(**fields: Any) -> list[str]:
        return [
            row["name"]
            for row in site.mlflow("POST", "experiments/search", {"max_results": 100, **fields})["experiments"]
        ]

    assert names(filter="name LIKE 'exp-%'", order_by=["name DESC"]) == [f"exp-{n}" for n in (4, 3, 2, 1, 0)]
    assert names(filter="tags.n = '3'") == ["exp-3"]
    assert names(filter="name ILIKE 'EXP-1'") == ["exp-1"]
    assert names(filter="name LIKE 'EXP-1'") == []
    first = site.mlflow(
        "POST", "experiments/search", {"max_results": 2, "order_by": ["name"], "filter": "name LIKE 'exp%'"}
    )
    second = site.mlflow(
        "POST",
        "experiments/search",
        {"max_results": 2, "order_by": ["name"], "filter": "name LIKE 'exp%'", "page_token": first["next_page_token"]},
    )
    assert [row["name"] for row in first["experiments"] + second["experiments"]] == [f"exp-{n}" for n in range(4)]
    refused(site, "POST", "experiments/search", {"max_results": 2, "page_token": "!!"})
    refused(site, "POST", "experiments/search", {"max_results": 0})


def test_a_damaged_table_is_reported_and_not_overwritten(own_site: Site) -> None:
    experiment(own_site, "kept")
    path = own_site.home.path / "mlflow.json"
    path.write_text("{")
    own_site.context.experiments = ExperimentTable(own_site.home.path)
    refused(own_site, "POST", "experiments/create", {"name": "other"}, "INTERNAL_ERROR")
    assert path.read_text() == "{"
