"""A script for `accelerate launch` trains over all replicas."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "torch"
REPLICAS = ["master-0", "worker-0", "worker-1"]


@pytest.mark.smoke
def test_all_ranks_train_one_model(stage: Staged) -> None:
    example = stage("accelerate", ENVIRONMENT)
    run = example.trained()
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
    assert [path.name for path in (run.folder / "outputs").glob("checkpoint-*")] == ["checkpoint-000039"]
    assert run.models() == ["accelerate-example"]
    alone = example.alone()
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("accelerate", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=0.1))
    assert run.shown["attempt"] == 2
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
