"""TensorFlow: TF_CONFIG for every task, and what it calls the master."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.plan import Plan
from tests.plan.samples import distributed, environment, messages, planned


def config(made: Plan, name: str) -> Any:
    return json.loads(environment(made, name)["TF_CONFIG"])


def task_of(made: Plan) -> str:
    word: str = config(made, "master-0")["task"]["type"]
    return word


def with_build(build: str) -> Plan:
    return distributed("tensorflow", n_workers=1, n_ps=1, top=f"build: {build}\n")


def test_tf_config_is_json_for_every_task_and_all_see_the_same_cluster() -> None:
    made = distributed("tensorflow", n_workers=2, n_ps=1)
    cluster = {
        "chief": ["master-0.example:2222"],
        "worker": ["worker-0.example:2222", "worker-1.example:2222"],
        "ps": ["ps-0.example:2222"],
    }
    tasks = {"master-0": ("chief", 0), "worker-0": ("worker", 0), "worker-1": ("worker", 1), "ps-0": ("ps", 0)}
    for name, (kind, index) in tasks.items():
        assert config(made, name) == {
            "cluster": cluster,
            "task": {"type": kind, "index": index},
            "model_dir": "/run/outputs",
            "environment": "cloud",
        }


def test_a_task_finds_itself_in_the_cluster() -> None:
    made = distributed("tensorflow", n_workers=3, n_ps=2)
    for found in made.replicas:
        whole = config(made, found.name)
        task = whole["task"]
        assert whole["cluster"][task["type"]][task["index"]] == f"{found.name}.example:2222"


def with_master_task(word: str, build: str = "{image: 'busybox:1'}") -> Plan:
    return planned(f"""
        version: 1
        kind: experiment
        framework: tensorflow
        build: {build}
        environment: {{replicas: {{n_workers: 1, master_task: {word}}}}}
        run: {{cmd: ls}}
    """)


@pytest.mark.parametrize("word", ["master", "chief"])
def test_the_file_decides_what_the_master_is_called(word: str) -> None:
    made = with_master_task(word)
    assert task_of(made) == word
    assert next(iter(config(made, "worker-0")["cluster"])) == word
    assert any(f"`{word}`: the file says so" in message for message in messages(made))


@pytest.mark.parametrize(
    "build",
    [
        "{image: 'tensorflow/tensorflow:1.4.1'}",
        "{image: 'tensorflow/tensorflow:1.15.0-gpu-py3'}",
        "{image: 'registry.example:5000/tensorflow/tensorflow:1.12.0'}",
        "{image: 'registry.example/tensorflow-cpu:v1.9.0'}",
        "{image: 'python:3.7', build_steps: [pip install tensorflow==1.15.5]}",
        "{image: 'python:3.7', build_steps: [apt-get update, pip install --no-cache-dir tensorflow-gpu~=1.14 numpy]}",
        "{image: 'python:3.7', build_steps: ['pip install \"tensorflow>=1.13,<2\"']}",
        "{image: 'python:3.7', build_steps: ['pip install \"tensorflow<2\"']}",
        "{image: 'python:3.7', build_steps: ['pip install \"tensorflow<2.0\"']}",
    ],
)
def test_a_build_with_tensorflow_1_means_a_master(build: str) -> None:
    made = with_build(build)
    assert task_of(made) == "master"
    assert any("`master`" in message and "TensorFlow 1" in message for message in messages(made))


@pytest.mark.parametrize(
    "build",
    [
        "{image: 'tensorflow/tensorflow:2.15.0'}",
        "{image: 'tensorflow/tensorflow:2.21.0-gpu'}",
        "{image: 'python:3.11', build_steps: [pip install tensorflow-cpu==2.21.0]}",
        "{image: 'python:3.11', build_steps: ['pip install \"tensorflow<3\"']}",
        "{image: 'tensorflow/tensorflow:1.15.0', build_steps: [pip install tensorflow==2.1.0]}",
    ],
)
def test_a_build_with_tensorflow_2_means_a_chief_and_a_step_counts_more_than_the_image(build: str) -> None:
    made = with_build(build)
    assert task_of(made) == "chief"
    assert any("`chief`" in message and "TensorFlow 2" in message for message in messages(made))


@pytest.mark.parametrize(
    "build",
    [
        "{image: 'tensorflow/tensorflow:latest'}",
        "{image: 'python:3.11'}",
        "{image: 'python:1.2', build_steps: [pip install tensorflow-estimator==1.15, pip install numpy==1.1]}",
        "{dockerfile: Dockerfile}",
    ],
)
def test_a_build_that_names_no_version_means_a_chief(build: str) -> None:
    assert task_of(with_build(build)) == "chief"


def test_without_a_build_it_is_a_chief_and_the_note_says_how_to_change_that() -> None:
    made = distributed("tensorflow")
    assert task_of(made) == "chief"
    (note,) = [note for note in made.notes if "TF_CONFIG" in note.message]
    assert "`environment.replicas.master_task: master`" in note.message
    assert (note.path, note.place.line) == ("environment.replicas", 6)


def test_the_file_wins_over_the_build() -> None:
    assert task_of(with_master_task("chief", "{image: 'tensorflow/tensorflow:1.4.1'}")) == "chief"
    assert task_of(with_master_task("master", "{image: 'tensorflow/tensorflow:2.15.0'}")) == "master"


def test_empty_roles_are_listed_for_tensorflow_1_and_left_out_for_2() -> None:
    assert list(config(with_master_task("master"), "worker-0")["cluster"]) == ["master", "worker", "ps"]
    assert list(config(with_master_task("chief"), "worker-0")["cluster"]) == ["chief", "worker"]


def test_polyaxons_own_variables_say_master_either_way() -> None:
    made = with_master_task("chief")
    variables = environment(made, "master-0")
    assert json.loads(variables["POLYAXON_TASK_INFO"]) == {"type": "master", "index": 0}
    assert next(iter(json.loads(variables["POLYAXON_CLUSTER"]))) == "master"


def test_only_tensorflow_has_a_tf_config() -> None:
    assert "TF_CONFIG" not in environment(distributed("pytorch"), "master-0")
