"""What a cluster says that it offers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.cluster.api import Api, ApiFault, connect
from phalanx.backends.kubernetes.cluster.assumed_offer import OFFLINE
from phalanx.backends.kubernetes.cluster.discovery import HELPFUL, NEEDED, Need, amount, discover, rules, survey
from phalanx.backends.kubernetes.target import Settings
from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.backends.kubernetes.apiserver_objects import RESOURCES, Resource
from tests.backends.kubernetes.schemas import validate


@contextmanager
def asked(server: FakeApiServer, folder: Path) -> Iterator[Api]:
    with server:
        api = connect(Settings(kubeconfig=str(server.kubeconfig(folder / "config"))))
        yield api
        api.close()


def named(kind: str, api_version: str, name: str, namespace: str | None = "default", **more: Any) -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **more}


def test_the_usual_cluster_is_what_we_take_clusters_for(tmp_path: Path) -> None:
    with asked(FakeApiServer(), tmp_path) as api:
        cluster = discover(api)
    assert not cluster.is_assumed
    assert (cluster.version, cluster.kinds) == (OFFLINE.version, OFFLINE.kinds)
    assert (cluster.gang, cluster.queues, cluster.runtimes) == (None, (), ())


def test_old_operators_have_mxnet_and_both_versions_of_mpi_are_ordered(tmp_path: Path) -> None:
    with asked(FakeApiServer(version="1.27+", operators=["training-operator-1.8", "mpi"]), tmp_path) as api:
        cluster = discover(api)
    assert cluster.version == (1, 27)
    assert cluster.kinds["MXJob"] == ("kubeflow.org/v1",)
    assert cluster.kinds["MPIJob"] == ("kubeflow.org/v2beta1", "kubeflow.org/v1")
    assert "JAXJob" not in cluster.kinds


def test_trainer_has_runtimes(tmp_path: Path) -> None:
    server = FakeApiServer(operators=["trainer"])
    for name in ("torch-distributed", "mine"):
        server.put(named("ClusterTrainingRuntime", "trainer.kubeflow.org/v1alpha1", name, None))
    with asked(server, tmp_path) as api:
        cluster = discover(api)
        assert cluster.runtimes == ("mine", "torch-distributed")
        assert set(cluster.kinds) == {"Job", "TrainJob", "JobSet"}
        server.deny("list", "clustertrainingruntimes")
        assert discover(api).runtimes == ()


def test_kueue_counts_where_the_namespace_has_queues(tmp_path: Path) -> None:
    server = FakeApiServer(operators=["kueue", "volcano"])
    with asked(server, tmp_path) as api:
        cluster = discover(api)
        assert (cluster.gang, cluster.kinds["PodGroup"]) == ("volcano", ("scheduling.volcano.sh/v1beta1",))
        server.put(named("LocalQueue", "kueue.x-k8s.io/v1beta1", "team"))
        server.put(named("LocalQueue", "kueue.x-k8s.io/v1beta1", "others", "kube-system"))
        cluster = discover(api)
        assert (cluster.gang, cluster.queues) == ("kueue", ("team",))


@contextmanager
def mutated(patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]) -> Iterator[list[dict[str, Any]]]:
    """With Kueue's webhook. What it is asked about."""
    create, heard = Api.create, []

    def changed(self: Api, *asked: Any, **more: Any) -> Any:
        made = create(self, *asked, **more)
        heard.append(copy.deepcopy(made))
        change(made)
        return made

    with patch.context() as within:
        within.setattr(Api, "create", changed)
        yield heard


def hold(queue: str | None) -> Callable[[dict[str, Any]], None]:
    """Every Job, also one that names no queue."""

    def change(made: dict[str, Any]) -> None:
        if made["kind"] == "Job":
            made["spec"]["suspend"] = True
            made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}

    return change


def gate(made: dict[str, Any]) -> None:
    if made["kind"] == "Pod" and "kueue.x-k8s.io/queue-name" in made["metadata"]["labels"]:
        made["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]


def test_kueue_that_takes_every_job_is_reported_by_one_that_is_never_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer(operators=["kueue", "volcano"])
    with asked(server, tmp_path) as api:
        assert not discover(api).queues_all
        with mutated(monkeypatch, hold(None)):
            cluster = discover(api)
            assert (cluster.gang, cluster.queues, cluster.queues_all) == ("kueue", (), True)
        with mutated(monkeypatch, hold("default")):  # whoever may not list queues hears of this one
            server.deny("list", "localqueues")
            cluster = discover(api)
            assert (cluster.gang, cluster.queues, cluster.queues_all) == ("kueue", ("default",), True)
        server.deny("create", "jobs")
        cluster = discover(api)
        assert (cluster.gang, cluster.queues_all) == ("volcano", False)
    assert not server.names("Job")


def test_kueue_that_takes_no_pods_is_reported_by_one_that_is_never_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer(operators=["kueue"])
    server.put(named("LocalQueue", "kueue.x-k8s.io/v1beta1", "team"))
    with asked(server, tmp_path) as api:
        assert not discover(api).queues_pods
        with mutated(monkeypatch, gate) as heard:
            assert discover(api).queues_pods
        server.deny("create", "pods")  # as for most
        assert discover(api).queues_pods
    assert not server.names("Pod")
    assert [one["kind"] for one in heard] == ["Job", "Pod"]
    assert heard[1]["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    for one in heard:
        own = {"apiVersion": one["apiVersion"], "kind": one["kind"], "metadata": {"name": "p"}, "spec": one["spec"]}
        validate(own, "1.34")


def test_queues_are_listed_in_a_version_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = (
        Resource("kueue.x-k8s.io", "v1", "cohorts", "Cohort", False),  # the preferred one
        Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue"),
    )
    monkeypatch.setitem(RESOURCES, "kueue", newer)
    server = FakeApiServer(operators=["kueue"])
    server.put(named("LocalQueue", "kueue.x-k8s.io/v1beta2", "team"))
    with asked(server, tmp_path) as api:
        assert discover(api).queues == ("team",)


@pytest.mark.parametrize("operator", ["volcano", "scheduler-plugins"])
def test_without_the_right_to_create_gangs_a_run_does_without(tmp_path: Path, operator: str) -> None:
    server = FakeApiServer(operators=[operator])
    server.deny("create", "podgroups")
    server.deny("watch", "podgroups")
    with asked(server, tmp_path) as api:
        assert discover(api).gang is None
        found = survey(api)
    assert not found.missing  # runs run
    assert {(need.verb, need.resource) for need in found.unhelpful} == {("create", "podgroups"), ("watch", "podgroups")}


@pytest.mark.parametrize(("operator", "gang"), [("scheduler-plugins", "scheduler-plugins"), ("kueue", "kueue")])
def test_the_installed_scheduler_makes_gangs(tmp_path: Path, operator: str, gang: str) -> None:
    with asked(FakeApiServer(operators=[operator]), tmp_path) as api:
        assert discover(api).gang == gang


def test_a_group_that_does_not_answer_is_not_there(tmp_path: Path) -> None:
    server = FakeApiServer()
    with asked(server, tmp_path) as api:
        server.fail_next(503, path="/apis/kubeflow.org/v1", times=5)
        server.fail_next(503, path="/apis/kubeflow.org/v2beta1", times=5)
        api._sleep = lambda _: None
        assert set(discover(api).kinds) == {"Job"}
        server.fail_next(400, path="/version")
        with pytest.raises(ApiFault):
            discover(api)


def test_the_role_has_exactly_what_is_needed() -> None:
    made = rules()
    again = {
        Need(verb, group, resource)
        for rule in made
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert again == set(NEEDED)
    assert len(NEEDED) == len(set(NEEDED))
    assert not any(need.verb in ("*", "update", "patch", "deletecollection") for need in NEEDED)
    assert not set(NEEDED) & set(HELPFUL)
    verbs = ["create", "get", "delete"]
    assert {"apiGroups": [""], "resources": ["configmaps", "secrets", "services"], "verbs": verbs} in made


def test_a_survey_asks_only_about_what_there_is(tmp_path: Path) -> None:
    server = FakeApiServer(operators=["mpi"])
    server.deny("create", "jobs")
    server.deny("get", "pods/log")
    with asked(server, tmp_path) as api:
        found = survey(api)
    assert found.missing == (Need("get", "", "pods/log"), Need("create", "batch", "jobs"))
    assert str(found.missing[1]) == "create jobs.batch"
    reviewed = [one.body["spec"]["resourceAttributes"] for one in server.requests if "accessreviews" in one.path]
    assert {"batch", "kubeflow.org", ""} == {one["group"] for one in reviewed}
    assert {one["namespace"] for one in reviewed if one["resource"] != "nodes"} == {"default"}


def test_gpus_quotas_and_limits_are_reported(tmp_path: Path) -> None:
    server = FakeApiServer()
    for name, closed, count in (("a", False, "8"), ("b", False, "4"), ("c", True, "8"), ("d", False, "0")):
        node = named("Node", "v1", name, None, spec={"unschedulable": closed})
        node["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-A100"}
        node["status"] = {"allocatable": {"cpu": "64", "hugepages-2Mi": "0", "nvidia.com/gpu": count}}
        server.put(node)
    quota = {
        "hard": {"pods": "10", "requests.nvidia.com/gpu": "4"},
        "used": {"pods": "1", "requests.nvidia.com/gpu": "4"},
    }
    server.put(named("ResourceQuota", "v1", "team", spec={"hard": quota["hard"]}, status=quota))
    server.put(named("LimitRange", "v1", "small", spec={"limits": [{"type": "Container", "max": {"memory": "8Gi"}}]}))
    with asked(server, tmp_path) as api:
        found = survey(api)
    row = {"device": "nvidia.com/gpu", "model": "NVIDIA-A100", "nodes": 2, "per_node": 8, "total": 12}
    assert (found.nodes, found.devices) == (4, (row,))
    assert [(one["resource"], one["is_used_up"]) for one in found.quotas] == [
        ("pods", False),
        ("requests.nvidia.com/gpu", True),
    ]
    assert found.limits[0]["value"] == "8Gi"
    assert found.as_json()["version"] == "1.34.0"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("2", 2.0),
        ("2Gi", 2.0 * 1024**3),
        ("1k", 1000.0),
        ("1e3", 1000.0),
        ("odd", 0.0),
        ("1.5Ki", 1536.0),
    ],
)
def test_quantities_are_read(text: str, value: float) -> None:
    assert amount(text) == value
