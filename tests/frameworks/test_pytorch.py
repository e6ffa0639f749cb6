"""PyTorch trains over gloo, from a file of its documents."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "torch"
REPLICAS = ["master-0", "worker-0", "worker-1", "worker-2"]


@pytest.mark.smoke
def test_all_ranks_train_one_model(stage: Staged) -> None:
    example = stage("pytorch", ENVIRONMENT)
    run = example.trained()
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
    alone = example.alone()
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)
    assert "pytorch-example" in run.models()


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("pytorch", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=0.1))
    assert run.shown["attempt"] == 2
    run.assert_agreed()
    assert_continuous(run.steps("loss"), 40)


def test_the_topology_of_the_document(stage: Staged) -> None:
    run = stage("pytorch", ENVIRONMENT).trained("document.yml")
    run.assert_agreed()
    assert sorted(run.steps("loss")) == ["master-0", *(f"worker-{index}" for index in range(7))]
    assert_continuous(run.steps("loss"), 10)


@pytest.mark.parametrize("file", ["processes.yml", "torchrun.yml"])
def test_every_process_of_a_replica_is_a_rank(stage: Staged, file: str) -> None:
    """Whether Phalanx starts them, or torchrun in the replica does."""
    run = stage("pytorch", ENVIRONMENT).trained(file)
    run.assert_agreed()
    assert sorted(run.weights()) == [0, 1, 2, 3]
    assert sorted(run.steps("loss")) == ["master-0", "master-0.1", "worker-0", "worker-0.1"]
    assert_continuous(run.steps("loss"), 10)
