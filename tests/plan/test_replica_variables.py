"""The variables that every replica gets, whatever its framework."""

from __future__ import annotations

import json
import re
import uuid

import pytest

from phalanx.plan import replica_variables
from tests.plan.samples import RUN_ID, distributed, environment, planned

PARAMS = """
    version: 1
    kind: experiment
    name: lenet
    params:
      learning_rate: 0.001
      layers: [64, 32]
      optimizer: {name: adam, amsgrad: true}
      note: 'says "hi" & leaves'
      nothing: null
      doubled: "{{ learning_rate * 2 }}"
    logging: {level: DEBUG}
    environment: {data_refs: [images, labels.v2]}
    run: {cmd: ls}
"""
VALUES = {
    "learning_rate": 0.001,
    "layers": [64, 32],
    "optimizer": {"name": "adam", "amsgrad": True},
    "note": 'says "hi" & leaves',
    "nothing": None,
    "doubled": 0.002,
}


def test_params_arrive_typed_under_every_name() -> None:
    variables = environment(planned(PARAMS), "master-0")
    for name in ("PHALANX_PARAMS", "POLYAXON_PARAMS", "POLYAXON_DECLARATIONS"):
        assert json.loads(variables[name]) == VALUES


def test_the_run_and_the_replica_are_named() -> None:
    made = distributed("tensorflow", n_workers=2, n_ps=1)
    variables = environment(made, "worker-1")
    wanted = {
        "PHALANX_RUN_ID": RUN_ID,
        "PHALANX_RUN_NAME": RUN_ID,
        "PHALANX_PROJECT": "default",
        "PHALANX_REPLICA": "worker-1",
        "PHALANX_ROLE": "worker",
        "PHALANX_INDEX": "1",
        "PHALANX_RANK": "2",
        "PHALANX_WORLD_SIZE": "4",
        "PHALANX_OUTPUTS": "/run/outputs",
    }
    assert {name: variables.get(name) for name in wanted} == wanted


def test_a_run_with_a_name_goes_by_it() -> None:
    assert environment(planned(PARAMS), "master-0")["PHALANX_RUN_NAME"] == "lenet"


def test_the_cluster_is_the_same_for_both_contracts_and_all_replicas() -> None:
    made = distributed("mxnet", n_workers=2, n_ps=1)
    cluster = {
        "master": ["master-0.example:2222"],
        "worker": ["worker-0.example:2222", "worker-1.example:2222"],
        "server": ["server-0.example:2222"],
    }
    for found in made.replicas:
        variables = environment(made, found.name)
        assert json.loads(variables["POLYAXON_CLUSTER"]) == cluster
        assert json.loads(variables["PHALANX_CLUSTER"]) == cluster


def test_a_run_of_one_replica_has_a_cluster_of_one_master() -> None:
    assert json.loads(environment(planned(PARAMS), "master-0")["POLYAXON_CLUSTER"]) == {
        "master": ["master-0.example:2222"]
    }


def test_roles_without_replicas_are_empty_lists() -> None:
    made = distributed("tensorflow", n_workers=1, n_ps=0)
    assert json.loads(environment(made, "master-0")["POLYAXON_CLUSTER"])["ps"] == []


def test_task_info_says_type_and_index() -> None:
    made = distributed("mxnet", n_workers=2, n_ps=2)
    infos = {found.name: json.loads(environment(made, found.name)["POLYAXON_TASK_INFO"]) for found in made.replicas}
    assert infos["master-0"] == {"type": "master", "index": 0}
    assert infos["worker-1"] == {"type": "worker", "index": 1}
    assert infos["server-1"] == {"type": "server", "index": 1}


def test_experiment_info_has_the_keys_of_the_reference() -> None:
    made = planned(PARAMS, project='team "a"')
    info = json.loads(environment(made, "master-0")["POLYAXON_EXPERIMENT_INFO"])
    assert (info["app"], info["role"], info["type"]) == ("polyaxon-experiment", "polyaxon-workers", "polyaxon-runner")
    assert (info["project_name"], info["experiment_name"]) == ('team "a"', 'team "a".lenet')
    assert re.fullmatch("[0-9a-f]{32}", info["project_uuid"])
    assert re.fullmatch("[0-9a-f]{32}", info["experiment_uuid"])
    assert environment(made, "master-0")["PHALANX_PROJECT"] == 'team "a"'


def test_the_uuid_belongs_to_the_run_and_the_project() -> None:
    def uuids(run_id: str, project: str) -> tuple[str, str]:
        info = json.loads(environment(planned(PARAMS, run_id, project), "master-0")["POLYAXON_EXPERIMENT_INFO"])
        return info["experiment_uuid"], info["project_uuid"]

    assert uuids("a", "p") == uuids("a", "p")
    assert uuids("a", "p")[0] != uuids("b", "p")[0]
    assert uuids("a", "p")[1] == uuids("b", "p")[1] != uuids("a", "q")[1]


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("kind: experiment\nrun: {cmd: ls}", "POLYAXON_EXPERIMENT_INFO", "experiment_uuid"),
        ("kind: job\nrun: {cmd: ls}", "POLYAXON_JOB_INFO", "job_uuid"),
        ("kind: notebook\nbuild: {image: 'jupyter:1'}", "POLYAXON_NOTEBOOK_INFO", "notebook_uuid"),
        ("kind: tensorboard\nbuild: {image: 'tf:1'}", "POLYAXON_TENSORBOARD_INFO", "tensorboard_uuid"),
    ],
)
def test_each_kind_has_its_own_info_and_no_others(text: str, name: str, key: str) -> None:
    variables = environment(planned(f"version: 1\n{text}\n"), "master-0")
    assert key in json.loads(variables[name])
    assert {found for found in variables if found.endswith("_INFO")} == {name, "POLYAXON_TASK_INFO"}


def test_folders_and_log_level_are_given() -> None:
    variables = environment(planned(PARAMS), "master-0")
    assert variables["POLYAXON_LOG_LEVEL"] == "DEBUG"
    assert variables["POLYAXON_LOGS_PATH"] == "/run/logs"
    assert variables["POLYAXON_RUN_OUTPUTS_PATH"] == variables["PHALANX_OUTPUTS"] == "/run/outputs"
    assert variables["POLYAXON_IS_MANAGED"] == "true"


def test_the_log_level_is_info_unless_said() -> None:
    assert environment(distributed("jax"), "master-0")["POLYAXON_LOG_LEVEL"] == "INFO"


def test_data_stores_have_their_folders() -> None:
    paths = json.loads(environment(planned(PARAMS), "master-0")["POLYAXON_RUN_DATA_PATHS"])
    assert paths == {"images": "/run/data/images", "labels.v2": "/run/data/labels.v2"}
    assert environment(distributed("jax"), "master-0")["POLYAXON_RUN_DATA_PATHS"] == "{}"


def test_outputs_of_earlier_runs_are_pointed_at_only_where_the_file_asks_for_them() -> None:
    asked = """
        version: 1
        kind: experiment
        environment: {outputs: {jobs: [7, cleaning], experiments: [lenet]}}
        run: {cmd: ls}
    """
    paths = json.loads(environment(planned(asked), "master-0")["POLYAXON_REFS_OUTPUTS_PATHS"])
    assert {kind: len(found) for kind, found in paths.items()} == {"jobs": 2, "experiments": 1}
    assert "POLYAXON_REFS_OUTPUTS_PATHS" not in environment(planned(PARAMS), "master-0")


@pytest.mark.parametrize("name", ["run/abc", "project/größer", ""])
def test_ids_are_uuids_of_version_5(name: str) -> None:
    namespace = uuid.UUID("7d0c4a55-5f0e-5c0b-9a0e-1b6a6f3f9a11")
    assert replica_variables._uuid5(name) == uuid.uuid5(namespace, name).hex
