"""JAX trains over several processes, which find each other without a word in the script."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "tensorflow"
REPLICAS = ["master-0", "worker-0", "worker-1", "worker-2"]


@pytest.mark.smoke
def test_all_processes_train_one_model(stage: Staged) -> None:
    example = stage("jax", ENVIRONMENT)
    run = example.trained()
    run.assert_agreed()
    assert sorted(run.weights()) == [0, 1, 2, 3]
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
    assert len(set(run.last("loss").values())) == 4  # each of its own share of the data
    alone = example.alone()
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)
    assert "jax-example" in run.models()


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("jax", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=0.2))
    assert run.shown["attempt"] == 2
    points = example.call("metrics", run.id, "loss", "--csv").out
    assert "loss,master-0,0,1,3," in points  # step 3 is of the first attempt
    assert "loss,master-0,0,2,39," in points  # the last one is of the second
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
