"""Manifests of other tools run as users bring them: `phalanx convert job.yaml > polyaxonfile.yml && phalanx run`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import ON, KubernetesPlace
from tests.kubernetes.test_runs import AtOnce
from tests.kubernetes.worlds import GIVEN, IMAGE, World

RANKS = "echo rank $RANK of $WORLD_SIZE at port $MASTER_PORT"


def _replicas(count: int, command: str, name: str) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "64Mi"}
    env = [{"name": "GREETING", "value": "hello"}]
    box = {"name": name, "image": IMAGE, "command": ["sh", "-c", command], "env": env}
    pod = {"containers": [{**box, "resources": {"requests": requests}}]}
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}


def _manifest(version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}


MANIFESTS = {
    "PyTorchJob": _manifest(
        "kubeflow.org/v1",
        "PyTorchJob",
        pytorchReplicaSpecs={"Master": _replicas(1, RANKS, "pytorch"), "Worker": _replicas(2, RANKS, "pytorch")},
    ),
    "TFJob": _manifest(
        "kubeflow.org/v1",
        "TFJob",
        tfReplicaSpecs={
            "Chief": _replicas(1, "echo $GREETING $TF_CONFIG", "tensorflow"),
            "Worker": _replicas(1, "echo $GREETING $TF_CONFIG", "tensorflow"),
        },
    ),
    "TrainJob": _manifest(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        runtimeRef={"name": "torch-distributed"},
        trainer={"image": IMAGE, "numNodes": 2, "command": ["sh", "-c", RANKS]},
    ),
    "Job": _manifest(
        "batch/v1", "Job", template=_replicas(1, "echo $GREETING from a job", "main")["template"], backoffLimit=0
    ),
}


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, own: Cluster | None) -> Iterator[AtOnce]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    world.make()
    place = KubernetesPlace(tmp_path_factory.mktemp("converted"), world)
    try:
        ids = {kind: converted_run(place, kind) for kind in MANIFESTS}
        found = place.over(*ids.values(), patience_s=360.0)
        yield AtOnce(place, dict(zip(ids, found, strict=True)), {})
    finally:
        place.close()
        world.remove()


def converted_run(place: KubernetesPlace, kind: str) -> str:
    (place.folder / "manifest.yaml").write_text(json.dumps(MANIFESTS[kind]))
    converted = place.call("convert", "manifest.yaml")
    assert converted.code == 0, converted.err
    (place.folder / "polyaxonfile.yml").write_text(converted.out)
    answer = place.call("run", "-d", *ON)
    assert answer.code == 0, answer.err
    return answer.out.strip()


@pytest.mark.smoke
def test_a_pytorch_job_runs_with_its_ranks(at_once: AtOnce) -> None:
    at_once.succeeded("PyTorchJob")
    lines = [line for lines in at_once.logs("PyTorchJob").values() for line in lines]
    assert sorted(line.split(" at port")[0] for line in lines) == [f"rank {rank} of 3" for rank in range(3)]


def test_a_tf_job_runs_with_its_cluster(at_once: AtOnce) -> None:
    at_once.succeeded("TFJob")
    logs = at_once.logs("TFJob")
    assert set(logs) == {"master-0", "worker-0"}
    for name, kind in (("master-0", "chief"), ("worker-0", "worker")):
        greeting, _, cluster = logs[name][0].partition(" ")
        assert (greeting, json.loads(cluster)["task"]["type"]) == ("hello", kind)


def test_a_train_job_runs_on_its_nodes(at_once: AtOnce) -> None:
    at_once.succeeded("TrainJob")
    lines = [line for lines in at_once.logs("TrainJob").values() for line in lines]
    assert sorted(line.split(" at port")[0] for line in lines) == ["rank 0 of 2", "rank 1 of 2"]


def test_a_job_runs(at_once: AtOnce) -> None:
    at_once.succeeded("Job")
    assert at_once.logs("Job") == {"master-0": ["hello from a job"]}
