"""MPI's ranks train together, started by Phalanx or by the command itself."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "torch"
WORKERS = ["worker-0", "worker-1", "worker-2"]


@pytest.mark.parametrize("file", [pytest.param("polyaxonfile.yml", marks=pytest.mark.smoke), "own.yml"])
def test_all_ranks_train_one_model(stage: Staged, file: str) -> None:
    run = stage("mpi", ENVIRONMENT).trained(file)
    run.assert_agreed()
    assert sorted(run.weights()) == [0, 1, 2]
    assert sorted(run.steps("loss")) == WORKERS
    assert_continuous(run.steps("loss"), 40)
    assert run.models() == ["mpi-example"]


def test_it_ends_where_one_process_does(stage: Staged) -> None:
    example = stage("mpi", ENVIRONMENT)
    run, alone = example.trained(), example.alone()
    assert list(run.last("loss").values()) == pytest.approx(list(alone.last("loss").values()) * 3, abs=0.02)


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("mpi", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=0.1))
    assert run.shown["attempt"] == 2
    run.assert_agreed()
    assert sorted(run.steps("loss")) == WORKERS
    assert_continuous(run.steps("loss"), 40)
