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


GUIDE = """\
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc", start=True
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)


@tf.function
def step(numbers):
    return strategy.run(total.assign_add, args=(next(numbers),))


@tf.function
def numbers_of_a_worker():
    return strategy.distribute_datasets_from_function(lambda _: tf.data.Dataset.from_tensors(1.0).repeat())


numbers = iter(coordinator.create_per_worker_dataset(numbers_of_a_worker))
for _ in range(50):
    coordinator.schedule(step, args=(numbers,))
coordinator.join()
print("total", total.numpy(), flush=True)
"""


def test_the_pattern_of_tensorflows_guide_ends_with_its_chief(stage: Staged) -> None:
    """Workers and parameter servers are in `server.join()` for ever; a stalled run would fail."""
    example = stage("tensorflow", ENVIRONMENT)
    (example.folder / "parameter_server.py").write_text(GUIDE)
    run = example.trained(
        example.changed("polyaxonfile.yml", lambda file: file["run"].update(cmd="python parameter_server.py"))
    )
    assert "total 50.0" in run.log("master-0")
    ends = {replica["name"]: replica["status"] for replica in run.shown["replicas"]}
    assert ends == {"master-0": "succeeded"} | dict.fromkeys(["worker-0", "worker-1", "worker-2", "ps-0"], "stopped")


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
    """The chief knows the weights; workers and parameter servers are ended after it."""
    assert f"rank 0 of {workers + 1} done, weights " in run.log("master-0")
    ends = {replica["name"]: replica["status"] for replica in run.shown["replicas"]}
    serving = [f"worker-{index}" for index in range(workers)] + [f"ps-{index}" for index in range(servers)]
    assert ends == {"master-0": "succeeded"} | dict.fromkeys(serving, "stopped")
