"""An estimator of TensorFlow 1 trains with a master, on a Python that `phalanx.tracking` does not know any more."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import Trained

ENVIRONMENT = "tensorflow1"
REPLICAS = ["master-0", "worker-0", "worker-1"]


@pytest.mark.smoke
def test_a_master_and_its_workers_share_the_steps(stage: Staged) -> None:
    example = stage("tensorflow1", ENVIRONMENT)
    run = example.trained()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_shared(run, 40)
    assert "rank 0 of 3 done, weights " in run.log("master-0")
    assert "rank 1 of 3 done" in run.log("worker-0")
    assert "rank 2 of 3 done" in run.log("worker-1")
    ends = {replica["name"]: replica["status"] for replica in run.shown["replicas"]}
    assert ends == dict.fromkeys(REPLICAS, "succeeded") | {"ps-0": "stopped"}
    alone = example.alone(pause=0)
    assert [step for step, _ in alone.series("loss")["master-0"]] == list(range(1, 41))
    assert run.last("loss")["master-0"] == pytest.approx(alone.last("loss")["master-0"], abs=0.02)
    assert run.last("eval/loss")["master-0"] == pytest.approx(alone.last("eval/loss")["master-0"], abs=0.02)
    registered = example.call("models", "register", run.id, "outputs/model", "--name", "tensorflow1-example")
    assert registered.code == 0, registered.err
    assert "tensorflow1-example" in run.models()


def test_it_resumes_from_its_checkpoint(stage: Staged) -> None:
    example = stage("tensorflow1", ENVIRONMENT)
    run = example.resumed(example.interrupted())
    assert run.shown["attempt"] == 2
    points = example.call("metrics", run.id, "loss", "--csv").out
    assert "loss,master-0,0,1,3," in points  # step 3 is of the first attempt
    assert "loss,master-0,0,2," in points
    assert_shared(run, 40)
    assert run.last("loss")["master-0"] < 0.05


def assert_shared(run: Trained, count: int) -> None:
    """Each step is logged by the rank that took it. As nobody waits, two may see the same one, and each may have begun
    one more when the last is done."""
    steps = run.steps("loss")
    assert all(earlier < later for found in steps.values() for earlier, later in pairwise(found)), steps
    taken = sorted(step for found in steps.values() for step in found)
    assert taken[0] == 1
    assert count <= taken[-1] < count + 3
    assert max(later - earlier for earlier, later in pairwise(taken)) <= 3, taken
