"""MPI through its operator: real ranks over real ssh, in pods of users without rights, without a name, or with all."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
import yaml

from tests.cli.homes import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import PATIENCE_S, KubernetesPlace
from tests.kubernetes.rest import suppress_code
from tests.kubernetes.sandboxes import NO_PYTHON_IMAGE
from tests.kubernetes.worlds import IMAGE
from tests.slurm import debian

MPI_IMAGE = os.environ.get("PHALANX_TEST_MPI_IMAGE")  # with mpirun and sshd, for a cluster of others
COMMAND = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $(uname -n) as $(id -u)"
GROUP = "/apis/kubeflow.org/v2beta1"


@pytest.fixture(name="mpi")
def mpi_fixture(own: Cluster | None, place: KubernetesPlace) -> str:
    """An image in which MPI is: on our own cluster that is this machine."""
    if own is None and MPI_IMAGE is None:
        pytest.skip("PHALANX_TEST_MPI_IMAGE names an image with Open MPI and sshd for this cluster")
    if own is not None:
        wanted = {"sshd": "openssh-server", "mpirun": "openmpi-bin"}
        debian.install([package for program, package in wanted.items() if not shutil.which(program, path=debian.PATH)])
    with suppress_code(404):
        place.world.api.get(f"{GROUP}/namespaces/{place.world.namespace}/mpijobs")
        return MPI_IMAGE or IMAGE
    pytest.skip("no MPIJob v2beta1 here")


def fields(image: str, **kubernetes: Any) -> dict[str, Any]:
    environment = {"replicas": {"n_workers": 2}, "kubernetes": kubernetes}
    return {"backend": "kubeflow", "framework": "mpi", "environment": environment, "build": {"image": image}}


def user(number: int) -> dict[str, Any]:
    values = {"runAsUser": number, "runAsGroup": number, "fsGroup": number, "runAsNonRoot": number != 0}
    return {"spec": {"securityContext": values}}


def ranks(place: KubernetesPlace, found: dict[str, Any]) -> list[list[str]]:
    """Of every rank: its number, the pod that it was in, and its user."""
    said = "\n".join(place.log(found["id"], row["name"]) for row in found["replicas"])
    words = sorted(line.split() for line in said.splitlines() if line.startswith("rank "))
    return [[line[1], line[5], line[7]] for line in words]


@pytest.mark.smoke
def test_ranks_are_started_in_other_pods(place: KubernetesPlace, mpi: str) -> None:
    """Over ssh, with the operator's keys and host names."""
    found = place.succeeded(COMMAND, **fields(mpi))
    job = f"phalanx-{found['id']}"
    assert ranks(place, found) == [["0", f"{job}-launcher", "1000"], ["1", f"{job}-worker-0", "1000"]]
    place.until_nothing_is_left(found["id"])


def test_a_converted_mpi_job_starts_as_many_ranks(place: KubernetesPlace, mpi: str) -> None:
    """`phalanx convert job.yaml > polyaxonfile.yml && phalanx run`."""

    def pod(*command: str) -> dict[str, Any]:
        box = {"name": "mpi", "image": mpi, **({"command": list(command)} if command else {})}
        return {"template": {"spec": {"containers": [box]}}}

    launcher = {"replicas": 1, **pod("mpirun", "-n", "2", "sh", "-c", COMMAND)}
    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": {"Launcher": launcher, "Worker": {"replicas": 2, **pod()}}}
    manifest = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "pi"}, "spec": spec}
    (place.folder / "job.yaml").write_text(yaml.safe_dump(manifest))
    converted = place.call("convert", "job.yaml")
    assert converted.code == 0, converted.err
    (place.folder / "polyaxonfile.yml").write_text(converted.out)
    answer = place.call("run", "-d", "--on", "kubeflow")
    assert answer.code == 0, answer.err
    (found,) = place.over(answer.out.strip())
    assert found["status"] == "succeeded", place.story(found["id"])
    assert [row[0] for row in ranks(place, found)] == ["0", "1"]


def test_a_user_whom_the_image_does_not_know_has_a_name(place: KubernetesPlace, mpi: str) -> None:
    found = place.succeeded(COMMAND, **fields(mpi, pod=user(4321)))
    assert [row[2] for row in ranks(place, found)] == ["4321", "4321"]


def test_root_comes_in_as_well(place: KubernetesPlace, mpi: str, own: Cluster | None) -> None:
    """Though its key is in a volume that others of its group can read, as ssh does not like it."""
    if own is None:
        pytest.skip("a namespace need not take pods of root's")
    found = place.succeeded(COMMAND, **fields(mpi, pod=user(0)))
    assert [row[2] for row in ranks(place, found)] == ["0", "0"]


def test_all_pods_end_when_it_is_stopped(place: KubernetesPlace, mpi: str) -> None:
    run = place.submitted("echo at work; sleep 300", **fields(mpi))
    place.at_work(run, replica="worker-0")
    wait_for(lambda: place.log(run, "worker-0").count("at work") == 2, PATIENCE_S)
    assert place.call("stop", run).code == 0
    (found,) = place.over(run)
    assert (found["status"], found["replicas"][0]["status"]) == ("stopped", "stopped"), place.story(run)
    place.until_nothing_is_left(run)


def test_a_rank_that_fails_in_another_pod_fails_the_run(place: KubernetesPlace, mpi: str) -> None:
    found = place.ran('[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 9; sleep 300', **fields(mpi))
    assert (found["status"], found["replicas"][0]["code"]) == ("failed", 9), place.story(found["id"])
    place.until_nothing_is_left(found["id"])


def test_a_deleted_pod_of_a_rank_is_named_and_no_failure_of_the_program(place: KubernetesPlace, mpi: str) -> None:
    run = place.submitted("echo at work; sleep 300", **fields(mpi))
    wait_for(lambda: place.log(run, "worker-0").count("at work") == 2, 2 * PATIENCE_S)
    place.world.api.delete(place.world.path("pods", f"phalanx-{run}-worker-0"))
    (found,) = place.over(run)
    assert found["status"] == "failed", place.story(run)
    assert "worker-1: its pod was deleted, not by Phalanx" in found["reason"], place.story(run)
    assert found["replicas"][0]["cause"] == "lost"
    place.until_nothing_is_left(run)


def test_an_image_without_sshd_fails_at_once_and_says_so(place: KubernetesPlace, mpi: str, own: Cluster | None) -> None:
    """Its hosts end before there is a launcher, which the operator goes on waiting for."""
    if own is None:
        pytest.skip(f"{mpi} has one")
    found = place.ran(COMMAND, **fields(NO_PYTHON_IMAGE))
    assert found["status"] == "failed", place.story(found["id"])
    assert "its image has no sshd: use one with openssh-server" in place.call("show", found["id"]).out, place.story(
        found["id"]
    )
    place.until_nothing_is_left(found["id"])


def test_a_launcher_that_comes_first_waits_for_its_hosts(place: KubernetesPlace, mpi: str) -> None:
    """As where Kueue held the job back: the operator does not make it wait then."""
    world = place.world
    planned = place.call("plan", "-f", place.file(COMMAND, **fields(mpi)), "--on", "kubeflow")
    assert planned.code == 0, planned.err
    made = list(yaml.safe_load_all(planned.out))
    (job,) = (one for one in made if one["kind"] == "MPIJob")
    job["spec"]["runPolicy"]["suspend"] = True
    hosts = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    hosts["initContainers"].insert(0, {**hosts["initContainers"][-1], "name": "late", "command": ["sleep", "8"]})
    for one in made:
        world.api.ensure(one, world.namespace)
    name, path = job["metadata"]["name"], f"{GROUP}/namespaces/{world.namespace}/mpijobs/{job['metadata']['name']}"
    wait_for(lambda: "Suspended" in conditions(world.api.get(path)), PATIENCE_S)
    world.api.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    try:
        wait_for(lambda: conditions(world.api.get(path)) & {"Succeeded", "Failed"}, PATIENCE_S)
        (pod,) = world.items("pods", labelSelector=f"job-name={name}-launcher")
        log = world.api.text(world.path("pods", f"{pod['metadata']['name']}/log"))
        assert "Succeeded" in conditions(world.api.get(path)), log
        assert f"phalanx: waiting for the ssh servers of {name}-worker-0." in log
        assert f"rank 1 of 2 in {name}-worker-0" in log
    finally:
        world.api.delete(path)


def conditions(found: dict[str, Any]) -> set[str]:
    found_conditions = (found.get("status") or {}).get("conditions") or ()
    return {one["type"] for one in found_conditions if one["status"] == "True"}
