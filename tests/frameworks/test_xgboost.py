"""XGBoost grows one model over all replicas, which meet at the tracker that the first one starts."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "torch"
REPLICAS = ["master-0", "worker-0", "worker-1"]
ERROR = "train/rmse"


@pytest.mark.smoke
def test_all_ranks_grow_one_model(stage: Staged) -> None:
    example = stage("xgboost", ENVIRONMENT)
    run = example.trained()
    run.assert_agreed()
    assert sorted(run.steps(ERROR)) == REPLICAS
    assert_continuous(run.steps(ERROR), 40)
    assert len(set(run.last(ERROR).values())) == 1  # it is measured over the data of all
    assert run.models() == ["xgboost-example"]
    alone = example.alone()
    assert run.last(ERROR)["master-0"] == pytest.approx(alone.last(ERROR)["master-0"], abs=0.2)


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("xgboost", ENVIRONMENT)
    run = example.resumed(example.interrupted(metric=ERROR, pause=0.1))
    assert run.shown["attempt"] == 2
    run.assert_agreed()
    assert sorted(run.steps(ERROR)) == REPLICAS
    assert_continuous(run.steps(ERROR), 40)
