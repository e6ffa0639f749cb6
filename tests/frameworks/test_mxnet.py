"""MXNet trains through its key-value store, with Polyaxon's client, from files in Polyaxon's words."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import assert_continuous

ENVIRONMENT = "torch"


@pytest.mark.smoke
def test_workers_train_one_model_and_the_others_serve(stage: Staged) -> None:
    example = stage("mxnet", ENVIRONMENT)
    run = example.trained()
    run.assert_agreed()
    assert sorted(run.steps("loss")) == ["worker-0", "worker-1", "worker-2"]
    assert_continuous(run.steps("loss"), 40)
    assert {replica["name"]: replica["status"] for replica in run.shown["replicas"]} == dict.fromkeys(
        ["master-0", "worker-0", "worker-1", "worker-2", "server-0"], "succeeded"
    )
    assert run.models() == ["mxnet-example"]
    alone = example.alone()
    assert list(run.last("loss").values()) == pytest.approx([alone.last("loss")["master-0"]] * 3, abs=0.02)


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("mxnet", ENVIRONMENT)
    run = example.resumed(example.interrupted(pause=0.1))
    assert run.shown["attempt"] == 2
    run.assert_agreed()
    assert_continuous(run.steps("loss"), 40)


def test_the_topology_of_the_documents_trains(stage: Staged) -> None:
    run = stage("mxnet", ENVIRONMENT).trained("document.yml")
    run.assert_agreed()
    assert sorted(run.steps("loss")) == [f"worker-{index}" for index in range(7)]
    assert_continuous(run.steps("loss"), 40)
    assert len(run.shown["replicas"]) == 11
    assert {replica["status"] for replica in run.shown["replicas"]} == {"succeeded"}
