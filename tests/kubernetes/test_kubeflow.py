"""Runs through Kubeflow's operators: the real ones where a cluster has them, and their doubles where it is ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import ON, KubernetesPlace
from tests.kubernetes.programs import TRAP
from tests.kubernetes.rest import suppress_code
from tests.kubernetes.test_runs import AtOnce, replica
from tests.kubernetes.worlds import GIVEN, IMAGE, World
from tests.slurm import debian

TWO = {"replicas": {"n_workers": 2}}
SERVED = {
    "pytorch": "pytorchjobs",
    "tensorflow": "tfjobs",
    "xgboost": "xgboostjobs",
    "jax": "jaxjobs",
    "mxnet": "mxjobs",
}
WANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "pytorch": ("python3 meet.py", {"framework": "pytorch", "environment": TWO}),
    "tensorflow": (
        "python3 -c 'import json, os; print(json.dumps(json.loads(os.environ[\"TF_CONFIG\"]), sort_keys=True))'",
        {"framework": "tensorflow", "environment": {"replicas": {"n_workers": 1, "n_ps": 1}}},
    ),
    "xgboost": ("echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR", {"framework": "xgboost", "environment": TWO}),
    "jax": ("echo process ${PROCESS_ID:-$JAX_PROCESS_ID}", {"framework": "jax", "environment": TWO}),
    "failing": ("echo bad; exit 3", {"framework": "pytorch", "environment": TWO}),
    "metrics": ("python3 steps.py 20 0.02", {"framework": "pytorch", "environment": TWO}),
    "again": (
        "echo attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ] || exit 4",
        {"framework": "pytorch", "environment": {**TWO, "max_restarts": 1}},
    ),
}


def is_served(world: World, plural: str) -> bool:
    with suppress_code(404):
        world.api.get(f"/apis/kubeflow.org/v1/namespaces/{world.namespace}/{plural}")
        return True
    return False


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, own: Cluster | None) -> Iterator[AtOnce]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    world.make()
    place = KubernetesPlace(tmp_path_factory.mktemp("kubeflow"), world)
    try:
        ids = {
            name: place.submitted(command, **{"backend": "kubeflow", **fields})
            for name, (command, fields) in WANTED.items()
            if is_served(world, SERVED[fields["framework"]])
        }
        if not ids:
            pytest.skip("no operator of Kubeflow is here")
        found = place.over(*ids.values(), patience_s=240.0)
        yield AtOnce(place, dict(zip(ids, found, strict=True)), {})
    finally:
        place.close()
        world.remove()


def logs(at_once: AtOnce, name: str) -> dict[str, list[str]]:
    rows = at_once.runs[name]["replicas"]
    return {row["name"]: at_once.log(name, row["name"]).splitlines() for row in rows}


def test_ranks_of_pytorch_meet(at_once: AtOnce) -> None:
    at_once.succeeded("pytorch")
    assert logs(at_once, "pytorch") == {
        "master-0": ["met worker-0 worker-1"],
        "worker-0": ["answer welcome"],
        "worker-1": ["answer welcome"],
    }


def test_tensorflow_is_told_its_cluster(at_once: AtOnce) -> None:
    run = at_once.succeeded("tensorflow")["id"]
    told = logs(at_once, "tensorflow")
    assert '"type": "chief"' in told["master-0"][0]
    assert '"type": "worker"' in told["worker-0"][0]
    assert f"phalanx-{run}" in told["worker-0"][0], "the operator's names"


@pytest.mark.parametrize(("name", "words"), [("xgboost", "rank"), ("jax", "process")])
def test_every_rank_knows_its_number(at_once: AtOnce, name: str, words: str) -> None:
    if name not in at_once.runs:
        pytest.skip(f"no {SERVED[name]} here")
    at_once.succeeded(name)
    told = [line for lines in logs(at_once, name).values() for line in lines if line.startswith(words)]
    assert [line.split()[1] for line in sorted(told)] == ["0", "1", "2"]


def test_a_failure_is_told_with_its_code(at_once: AtOnce) -> None:
    found = at_once.runs["failing"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "exit code 3" in found["reason"]
    assert 3 in [row["code"] for row in found["replicas"]]


def test_metrics_come_home(at_once: AtOnce) -> None:
    run = at_once.succeeded("metrics")["id"]
    (found,) = at_once.place.call("metrics", run, "loss", "--json").data["metrics"]
    assert {line["replica"]: line["steps"] for line in found["series"]} == {
        name: list(range(20)) for name in ("master-0", "worker-0", "worker-1")
    }


def test_a_new_attempt_is_ours(at_once: AtOnce) -> None:
    found = at_once.succeeded("again")
    assert found["attempt"] == 2
    assert [at_once.log("again", attempt=number) for number in (1, 2)] == ["attempt 1\n", "attempt 2\n"]


def test_nothing_is_left(at_once: AtOnce) -> None:
    for found in at_once.runs.values():
        at_once.place.until_nothing_is_left(found["id"])


def test_a_run_is_stopped_through_its_operator(place: KubernetesPlace) -> None:
    if not is_served(place.world, "pytorchjobs"):
        pytest.skip("no PyTorchJob here")
    run = place.submitted(TRAP, backend="kubeflow", framework="pytorch", environment=TWO)
    place.at_work(run)
    assert place.call("stop", run).code == 0
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)
    assert "asked to end" in place.log(run)
    assert replica(found, "worker-0")["status"] == "stopped"
    place.until_nothing_is_left(run)


def test_what_an_operator_cannot_express_is_an_error_before_anything_is_made(place: KubernetesPlace) -> None:
    replicas = {"n_workers": 2, "worker": [{"index": 1, "resources": {"gpu": {"limits": 1}}}]}
    answer = place.run("true", *ON, backend="kubeflow", framework="pytorch", environment={"replicas": replicas})
    assert answer.code != 0
    assert "native" in answer.err, answer.err
    assert not place.world.items("configmaps", labelSelector="phalanx.dev/run")


MPI_IMAGE = os.environ.get("PHALANX_TEST_MPI_IMAGE")  # with mpirun, sshd and a user 1000, for a cluster of others


@pytest.fixture(name="mpi")
def mpi_fixture(own: Cluster | None) -> str:
    """An image in which MPI is: on our own cluster that is this machine."""
    if own is None and MPI_IMAGE is None:
        pytest.skip("PHALANX_TEST_MPI_IMAGE names an image with Open MPI and sshd for this cluster")
    if own is not None:
        wanted = {"sshd": "openssh-server", "mpirun": "openmpi-bin"}
        debian.install([package for program, package in wanted.items() if not shutil.which(program, path=debian.PATH)])
    return MPI_IMAGE or IMAGE


def test_mpi_starts_ranks_in_other_pods(place: KubernetesPlace, mpi: str) -> None:
    """Over ssh, with the operator's keys and host names."""
    with suppress_code(404):
        place.world.api.get(f"/apis/kubeflow.org/v2beta1/namespaces/{place.world.namespace}/mpijobs")
    command = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $(hostname)"
    fields = {"backend": "kubeflow", "framework": "mpi", "environment": TWO, "build": {"image": mpi}}
    found = place.succeeded(command, **fields)
    said = "\n".join(place.log(found["id"], row["name"]) for row in found["replicas"])
    lines = sorted(line.split(" in ")[0] for line in said.splitlines() if line.startswith("rank "))
    assert lines == [f"rank {number} of 2" for number in range(2)], said
    assert len({line.split(" in ")[1] for line in said.splitlines() if line.startswith("rank ")}) == 2, (
        "each in its own"
    )
    place.until_nothing_is_left(found["id"])
