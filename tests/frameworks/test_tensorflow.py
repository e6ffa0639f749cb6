"""TensorFlow 2 trains by both of its strategies for several machines, and is tracked by its own summaries."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import Trained, assert_continuous

ENVIRONMENT = "tensorflow"
PAUSE_S = 0.2  # event files are looked at every two seconds: long enough to be stopped in the midst of it


@pytest.mark.smoke
def test_parameter_servers_hold_the_model(stage: Staged) -> None:
    example = stage("tensorflow", ENVIRONMENT)
    run = example.trained()
    assert_served(run, workers=3, servers=1)
    assert list(run.steps("loss")) == ["master-0"]  # the chief alone knows it
    assert_continuous(run.steps("loss"), 40)
    alone = example.alone()
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)
    assert "tensorflow-example" in run.models()


def test_parameter_servers_are_given_the_checkpoint_again(stage: Staged) -> None:
    example = stage("tensorflow", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=PAUSE_S))
    assert run.shown["attempt"] == 2
    points = example.call("metrics", run.id, "loss", "--csv").out
    assert "loss,master-0,0,1,3," in points  # step 3 is of the first attempt
    assert "loss,master-0,0,2,39," in points  # the last one is of the second
    assert_served(run, workers=3, servers=1)
    assert_continuous(run.steps("loss"), 40)
    assert run.last("loss")["master-0"] < 0.05


def test_the_topology_of_the_documents(stage: Staged) -> None:
    run = stage("tensorflow", ENVIRONMENT).trained("document.yml")
    assert_served(run, workers=7, servers=3)
    assert_continuous(run.steps("loss"), 5)


def test_mirrors_hold_the_same_model(stage: Staged) -> None:
    example = stage("tensorflow", ENVIRONMENT)
    run = example.trained("mirrored.yml")
    run.assert_agreed()
    assert sorted(run.steps("loss")) == ["master-0", "worker-0", "worker-1"]
    assert_continuous(run.steps("loss"), 40)
    assert len(set(run.last("loss").values())) == 3  # each of its own share of the data
    alone = example.alone("mirrored.yml")
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)
    assert "tensorflow-example" in run.models()


def test_mirrors_resume_from_their_checkpoint(stage: Staged) -> None:
    example = stage("tensorflow", ENVIRONMENT)
    run = example.resumed(example.interrupted("mirrored.yml", pause=PAUSE_S))
    assert run.shown["attempt"] == 2
    points = example.call("metrics", run.id, "loss", "--csv").out
    assert "loss,master-0,0,1,3," in points  # step 3 is of the first attempt
    assert "loss,master-0,0,2,39," in points  # the last one is of the second
    run.assert_agreed()
    assert sorted(run.steps("loss")) == ["master-0", "worker-0", "worker-1"]
    assert_continuous(run.steps("loss"), 40)


def assert_served(run: Trained, workers: int, servers: int) -> None:
    """The chief knows the weights; workers end after it by themselves, parameter servers are ended."""
    assert f"rank 0 of {workers + 1} done, weights " in run.log("master-0")
    for index in range(workers):
        assert f"rank {index + 1} of {workers + 1} done" in run.log(f"worker-{index}")
    ends = {replica["name"]: replica["status"] for replica in run.shown["replicas"]}
    trained = {"master-0": "succeeded"} | {f"worker-{index}": "succeeded" for index in range(workers)}
    assert ends == trained | {f"ps-{index}": "stopped" for index in range(servers)}
