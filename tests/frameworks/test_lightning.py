"""A Lightning script trains over all replicas, each of them a node."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "torch"
REPLICAS = ["master-0", "worker-0", "worker-1"]


@pytest.mark.smoke
def test_all_nodes_train_one_model(stage: Staged) -> None:
    example = stage("lightning", ENVIRONMENT)
    run = example.trained()
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
    assert (run.folder / "outputs" / "checkpoints" / "last.ckpt").exists()
    assert run.models() == ["lightning-example"]
    alone = example.alone()
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("lightning", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=0.1))
    assert run.shown["attempt"] == 2
    assert "Restored all states from the checkpoint" in run.log("master-0")
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
