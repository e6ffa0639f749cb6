"""Kubeflow's operators: their kinds of jobs, where their pods are found, and what may be asked of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from phalanx import plan, spec
from phalanx.backends.kubernetes.operators import backend, job_kinds
from phalanx.backends.kubernetes.operators.job_kinds import (
    JAXJOB,
    MPIJOB,
    MPIJOB_V1,
    OPERATED,
    PYTORCHJOB,
    TFJOB,
    TRAINJOB,
)
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget
from phalanx.errors import CallError
from phalanx.placeholders import host
from phalanx.plan.model import Plan
from tests.backends.kubernetes.operator_objects import job_of, operated, templates_of

SMALL = {"resources": {"cpu": {"requests": 1}}}
OLD = Cluster(kinds={"MXJob": ("kubeflow.org/v1",), "MPIJob": ("kubeflow.org/v1",)}, is_assumed=False)
TRAINER = Cluster(kinds={"TrainJob": ("trainer.kubeflow.org/v1alpha1",)}, is_assumed=False)


def written(framework: str | None, command: str = "python train.py", **environment: Any) -> dict[str, Any]:
    """A file with a master and three workers that ask for the same."""
    replicas = {"n_workers": 3, "default_worker": SMALL, **environment.pop("replicas", {})}
    return {
        "version": 1,
        "kind": "experiment",
        "framework": framework,
        "backend": environment.pop("backend", "kubeflow"),
        "environment": {**SMALL, "replicas": replicas, **environment},
        "run": {"cmd": command},
    }


def planned(framework: str | None, command: str = "python train.py", run_id: str = "r1", **environment: Any) -> Plan:
    return plan.make(spec.load_document("file.yml", written(framework, command, **environment)), run_id)


def job(made: Plan, cluster: Cluster | None = None) -> Any:
    found = job_of(backend.objects(made, ClusterTarget(cluster=cluster or Cluster())))
    assert found is not None
    return found


ALL: Sequence[tuple[Plan, Cluster]] = (
    (planned("tensorflow", replicas={"n_ps": 2}), Cluster()),
    (planned("pytorch"), Cluster()),
    (planned("deepspeed"), Cluster()),
    (planned("xgboost"), Cluster()),
    (planned("jax"), Cluster()),
    (planned("mxnet", replicas={"n_ps": 1}), OLD),
    (planned("tensorflow", backend="mpi"), Cluster()),
    (planned("tensorflow", backend="mpi"), OLD),
    (planned("horovod"), Cluster()),
    (planned("pytorch"), TRAINER),
)


def test_every_kind_is_known_by_what_an_object_says() -> None:
    for known in OPERATED:
        assert operated({"apiVersion": known.api_version, "kind": known.kind}) == known
    assert operated({"apiVersion": "kubeflow.org/v2", "kind": "TFJob"}) is None
    assert len({(known.api_version, known.kind) for known in OPERATED}) == len(OPERATED)


def test_templates_of_jobs_and_of_what_has_none() -> None:
    assert list(templates_of({"kind": "Job", "apiVersion": "batch/v1", "spec": {"template": {"a": 1}}})) == [{"a": 1}]
    assert list(templates_of({"kind": "ConfigMap", "apiVersion": "v1", "data": {}})) == []
    bare = {"apiVersion": TRAINJOB.api_version, "kind": "TrainJob", "spec": {"runtimeRef": {"name": "x"}}}
    assert list(templates_of(bare)) == []


@pytest.mark.parametrize(
    ("made", "known", "hosts", "port"),
    [
        (planned("tensorflow", replicas={"n_workers": 1, "n_ps": 1}), TFJOB, "chief-0 worker-0 ps-0", 2222),
        (planned("pytorch", replicas={"n_workers": 2}), PYTORCHJOB, "master-0 worker-0 worker-1", 23456),
        (planned("jax", replicas={"n_workers": 1}), JAXJOB, "worker-0 worker-1", 6666),
        (planned("pytorch", replicas={"n_workers": 1}), TRAINJOB, "node-0-0.phalanx-r1 node-0-1.phalanx-r1", 29500),
    ],
)
def test_replicas_are_found_where_the_operator_has_them(
    made: Plan, known: job_kinds.OperatorKind, hosts: str, port: int
) -> None:
    tables = job_kinds.tables(made, ClusterTarget(), known)
    names = [replica.name for replica in made.replicas]
    assert [tables.host[name] for name in names] == [f"phalanx-r1-{name}" for name in hosts.split()]
    assert {tables.port[name] for name in names} == {port}
    assert tables.answer(host()) == tables.host[names[0]]


@pytest.mark.parametrize(
    ("known", "hosts"),
    [
        (
            MPIJOB,
            ["phalanx-r1-launcher.phalanx-r1", "phalanx-r1-worker-0.phalanx-r1", "phalanx-r1-worker-1.phalanx-r1"],
        ),
        (MPIJOB_V1, ["phalanx-r1-worker-0", "phalanx-r1-worker-1", "phalanx-r1-worker-2"]),
    ],
)
def test_hosts_of_mpi(known: job_kinds.OperatorKind, hosts: list[str]) -> None:
    from phalanx.backends.kubernetes.operators import mpi_jobs

    made = mpi_jobs.adapted(planned("tensorflow", backend="mpi"), known)
    tables = job_kinds.tables(made, ClusterTarget(), known)
    assert [tables.host[f"worker-{index}"] for index in range(3)] == hosts
    assert tables.path["hostfile"] == "/etc/mpi/hostfile"


@pytest.mark.parametrize(("made", "cluster"), ALL)
def test_pods_have_valid_names_for_any_name_of_a_run(made: Plan, cluster: Cluster) -> None:
    found = job(replace(made, run_id="A-very-long-name.of-a-run_" * 9), cluster)
    longest = f"{found['metadata']['name']}-launcher-0-99999-abcde"
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", longest)
    assert len(longest) <= 63
    named = re.findall(r"(phalanx-[a-z0-9-]*-(?:worker|node-0|launcher)-?\d*)[.:]", json.dumps(found))
    assert all(name.startswith(found["metadata"]["name"]) for name in named)


def test_further_processes_have_ports_of_their_own_and_know_their_ranks_from_the_plan() -> None:
    gpus = {"resources": {"gpu": {"requests": 2, "limits": 2}}}
    made = planned("pytorch", resources=gpus["resources"], replicas={"n_workers": 1, "default_worker": gpus})
    tables = job_kinds.tables(made, ClusterTarget(), PYTORCHJOB)
    assert (tables.host["worker-0.1"], tables.port["worker-0.1"]) == ("phalanx-r1-worker-0", 23457)
    assert job_kinds.processes(made) == 2
    assert {"RANK", "WORLD_SIZE"}.isdisjoint(job_kinds.yields(made, PYTORCHJOB))
    assert {"MASTER_ADDR", "MASTER_PORT", "PET_NNODES"} <= set(job_kinds.yields(made, PYTORCHJOB))
    assert {"RANK", "WORLD_SIZE"} <= set(job_kinds.yields(planned("pytorch"), PYTORCHJOB))


def test_torchrun_gets_the_number_of_processes_from_the_plan_where_replicas_differ() -> None:
    two = {"resources": {"gpu": {"requests": 2, "limits": 2}}}
    four = {"resources": {"gpu": {"requests": 4, "limits": 4}}}
    same = planned("pytorch", "torchrun train.py", resources=two["resources"], replicas={"default_worker": two})
    differing = planned("pytorch", "torchrun train.py", resources=two["resources"], replicas={"default_worker": four})
    assert job_kinds.processes(same) == 2
    assert "PET_NPROC_PER_NODE" in job_kinds.yields(same, PYTORCHJOB)
    assert "PET_NPROC_PER_NODE" not in job_kinds.yields(differing, PYTORCHJOB)


def test_the_first_version_that_both_have_is_taken() -> None:
    both = Cluster(kinds={"MPIJob": ("kubeflow.org/v3", "kubeflow.org/v2beta1", "kubeflow.org/v1")}, is_assumed=False)
    assert job_kinds.best("MPIJob", both) == MPIJOB
    assert job_kinds.best("MPIJob", OLD) == MPIJOB_V1
    assert job_kinds.best("TFJob", OLD) is None
    assert job_kinds.best("TFJob", Cluster(is_assumed=False)) is None
    assert job_kinds.best("TFJob", Cluster()) == TFJOB  # nobody said what there is


def test_pods_stay_and_are_not_started_again_by_the_operator() -> None:
    made = planned("pytorch", kubernetes={"ttl": "1h"})
    assert job_kinds.run_policy(made, PYTORCHJOB) == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": 3600}
    assert job_kinds.run_policy(made, MPIJOB)["backoffLimit"] == 0  # its launcher is a Job, with six tries by default


def test_the_operator_may_be_asked_to_start_pods_again() -> None:
    made = planned("pytorch", max_restarts=3, kubernetes={"restart_policy": "OnFailure"})
    assert job_kinds.restart_policy(made, PYTORCHJOB) == "OnFailure"
    assert job_kinds.run_policy(made, PYTORCHJOB)["backoffLimit"] == 4  # it fails a job that has as many
    found = job(made)
    policies = {each["restartPolicy"] for each in found["spec"]["pytorchReplicaSpecs"].values()}
    assert policies == {"OnFailure"}


@pytest.mark.parametrize(
    ("policy", "known", "restarts", "said"),
    [
        ("Always", PYTORCHJOB, 1, "supports only Never, OnFailure"),
        ("ExitCode", PYTORCHJOB, 1, "supports only Never, OnFailure"),
        ("ExitCode", MPIJOB, 1, "supports only Never, OnFailure"),
        ("OnFailure", TRAINJOB, 1, "a TrainJob supports only Never"),
        ("OnFailure", PYTORCHJOB, 0, "max_restarts"),
    ],
)
def test_what_an_operator_cannot_start_again_is_an_error(
    policy: str, known: job_kinds.OperatorKind, restarts: int, said: str
) -> None:
    made = planned("pytorch", max_restarts=restarts)
    made = replace(made, kubernetes=made.kubernetes._replace(restart_policy=policy))
    with pytest.raises(CallError, match=said):
        job_kinds.restart_policy(made, known)


def test_replicas_with_settings_of_their_own_are_named() -> None:
    own = [{"index": 1, "resources": {"gpu": {"requests": 1, "limits": 1}}}, {"index": 2, "labels": {"a": "b"}}]
    made = planned("pytorch", replicas={"n_workers": 5, "worker": own})
    with pytest.raises(CallError) as caught:
        job(made)
    assert "type Worker of a PyTorchJob are equal, and worker-1, worker-2 have" in str(caught.value)
    assert "(resources, labels)" in str(caught.value)
    assert "`backend: native` runs it" in str(caught.value)


def test_a_master_that_differs_says_where_to_write_the_same() -> None:
    made = planned("jax", resources={"cpu": {"requests": 4}})
    with pytest.raises(CallError, match=r"master-0 has different settings \(resources\): write the same below"):
        job(made)
