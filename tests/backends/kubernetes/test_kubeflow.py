"""Through Kubeflow: which job a run becomes on which cluster, and what none can become."""

from __future__ import annotations

import gzip
import json
import time
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from phalanx.backends.kubernetes.operators import backend, job_kinds
from phalanx.backends.kubernetes.operators.backend import BACKEND
from phalanx.backends.kubernetes.operators.job_kinds import USUAL
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget, Settings
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from phalanx.spec.model import Build
from tests.backends.kubernetes.operator_objects import job_of, templates_of
from tests.backends.kubernetes.schemas import faults_of, secrets_outside
from tests.backends.kubernetes.test_operators import ALL, OLD, SMALL, TRAINER, job, planned

KUEUE = Cluster(kinds=USUAL, gang="kueue", queues=("team",), is_assumed=False)
VOLCANO = Cluster(kinds={**USUAL, "PodGroup": ("scheduling.volcano.sh/v1beta1",)}, gang="volcano", is_assumed=False)


def rendered(made: Plan, cluster: Cluster | None = None, settings: Settings | None = None) -> list[dict[str, Any]]:
    """As a person gets it."""
    done = BACKEND.render(made, ClusterTarget(settings or Settings(), cluster or Cluster()))
    found: list[dict[str, Any]] = json.loads(done.files["manifests.json"])
    return found


@pytest.mark.parametrize(
    ("made", "kind", "counts", "container", "port"),
    [
        (planned("tensorflow", replicas={"n_ps": 2}), "TFJob", {"Chief": 1, "Worker": 3, "PS": 2}, "tensorflow",
         ("tfjob-port", 2222)),
        (planned("pytorch"), "PyTorchJob", {"Master": 1, "Worker": 3}, "pytorch", ("pytorchjob-port", 23456)),
        (planned("deepspeed"), "PyTorchJob", {"Master": 1, "Worker": 3}, "pytorch", ("pytorchjob-port", 23456)),
        (planned("xgboost"), "XGBoostJob", {"Master": 1, "Worker": 3}, "xgboost", ("xgboostjob-port", 9999)),
        (planned("jax"), "JAXJob", {"Worker": 4}, "jax", ("jaxjob-port", 6666)),
    ],
)  # fmt: skip
def test_a_framework_becomes_the_job_of_its_operator(
    made: Plan, kind: str, counts: dict[str, int], container: str, port: tuple[str, int]
) -> None:
    found = job(made)
    assert (found["apiVersion"], found["kind"]) == ("kubeflow.org/v1", kind)
    specs = next(value for name, value in found["spec"].items() if name.endswith("ReplicaSpecs"))
    assert {name: each["replicas"] for name, each in specs.items()} == counts
    for each in specs.values():
        assert each["restartPolicy"] == "Never"
        assert "restartPolicy" not in each["template"]["spec"]  # the operator warns of it
        (box,) = each["template"]["spec"]["containers"]
        assert box["name"] == container
        assert box["ports"] == [{"name": port[0], "containerPort": port[1]}]
        assert box["command"] == ["/bin/sh", "/phalanx/job/start.sh", "run"]
        index = next(variable for variable in box["env"] if variable["name"] == "PHALANX_POD_INDEX")
        assert job_kinds.REPLICA_INDEX in index["valueFrom"]["fieldRef"]["fieldPath"]


@pytest.mark.parametrize(("made", "cluster"), ALL)
def test_what_is_rendered_is_what_the_cluster_takes(made: Plan, cluster: Cluster) -> None:
    secret = replace(made, shared={**made.shared, "API_TOKEN": "hush-hush"}, timeout_s=3600.0)
    found = rendered(secret, cluster, Settings(server="https://phalanx.example"))
    assert faults_of(found) == []
    assert [each["kind"] for each in found[:2]] == ["ConfigMap", "Secret"]
    assert list(secrets_outside(found, ["hush-hush"])) == []


def test_members_are_listed_in_the_order_in_which_the_operator_counts() -> None:
    specs = job(planned("jax"))["spec"]["jaxReplicaSpecs"]
    env = {each["name"]: each.get("value") for each in specs["Worker"]["template"]["spec"]["containers"][0]["env"]}
    assert env["PHALANX_MEMBERS"] == "master-0,worker-0,worker-1,worker-2"
    assert env["JAX_COORDINATOR_ADDRESS"] == "phalanx-r1-worker-0:6666"
    assert specs["Worker"]["template"]["metadata"]["labels"]["phalanx.dev/role"] == "worker"


def test_variables_of_the_operator_are_left_to_it_and_win() -> None:
    owner, found = rendered(planned("pytorch"))
    yields = json.loads(owner["data"]["place.json"])["yields"]
    assert {"MASTER_ADDR", "RANK", "WORLD_SIZE", "PET_NNODES"} <= set(yields)
    for template in templates_of(found):
        given = {each["name"] for each in template["spec"]["containers"][0]["env"]}
        assert given.isdisjoint(yields)
    assert "TF_CONFIG" in json.loads(rendered(planned("tensorflow"))[0]["data"]["place.json"])["yields"]


def test_every_port_has_a_name_for_the_service_that_the_operator_makes_of_them() -> None:
    """The API server refuses a service with several of which one has none, or has a number twice."""
    more = [
        {"containerPort": 8080},
        {"containerPort": 9090, "name": "metrics"},
        {"containerPort": 23456, "name": "own"},
    ]
    box = {"name": "phalanx", "ports": more}
    found = job(planned("pytorch", kubernetes={"pod": {"spec": {"containers": [box]}}}))
    for template in templates_of(found):
        assert template["spec"]["containers"][0]["ports"] == [
            {"name": "pytorchjob-port", "containerPort": 23456},
            {"name": "port-8080", "containerPort": 8080},
            {"name": "metrics", "containerPort": 9090},
        ]


def test_a_strict_namespace_gets_no_master_of_pytorch() -> None:
    """Before its workers the operator puts a container that such a namespace refuses."""
    strict = Cluster(kinds=USUAL, is_assumed=False, pod_security="restricted")
    owner, found = rendered(planned("pytorch"), strict)
    specs = found["spec"]["pytorchReplicaSpecs"]
    assert {name: each["replicas"] for name, each in specs.items()} == {"Worker": 4}
    assert json.loads(owner["data"]["place.json"])["host"]["master-0"] == "phalanx-r1-worker-0"
    assert list(job(planned("tensorflow"), strict)["spec"]["tfReplicaSpecs"]) == ["Chief", "Worker"]
    assert faults_of([found]) == []


def test_pods_are_not_started_again_where_their_ends_come_home_at_once() -> None:
    made = planned("pytorch", max_restarts=2, kubernetes={"restart_policy": "OnFailure"})
    assert rendered(made)
    for settings in (Settings(server="https://phalanx.example"), Settings(home_claim="home")):
        with pytest.raises(CallError, match="`max_restarts` restarts the whole run"):
            rendered(made, settings=settings)


def test_tensorflow_1_has_a_master() -> None:
    found = job(planned("tensorflow", replicas={"master_task": "master"}))
    assert list(found["spec"]["tfReplicaSpecs"]) == ["Master", "Worker"]


def test_mxnet_is_scheduled_where_it_still_is() -> None:
    found = job(planned("mxnet", replicas={"n_ps": 2}), OLD)
    assert found["spec"]["jobMode"] == "MXTrain"
    counts = {name: each["replicas"] for name, each in found["spec"]["mxReplicaSpecs"].items()}
    assert counts == {"Scheduler": 1, "Worker": 3, "Server": 2}


def test_one_pod_needs_no_operator() -> None:
    found = rendered(planned("pytorch", replicas={"n_workers": 0}), TRAINER)
    assert [each["kind"] for each in found] == ["ConfigMap", "Job"]
    assert job_of(found) is None


@pytest.mark.parametrize(
    ("made", "cluster", "said"),
    [
        (planned("mxnet", replicas={"n_ps": 1}), Cluster(),
         "no MXJob on this cluster: operators after 1.8 dropped it; `backend: native` runs it"),
        (planned("mxnet", replicas={"n_ps": 1}), TRAINER, "has no runtime for MXNet; `backend: native` runs it"),
        (planned("tensorflow"), TRAINER, "Trainer, which has no runtime for TensorFlow; `backend: native` runs it"),
        (planned("jax"), OLD, r"JAXJob is not on this cluster: it has MXJob \(v1\), MPIJob \(v1\); `backend: native`"),
        (planned("pytorch"), Cluster(is_assumed=False), "no Kubeflow jobs; `backend: native` runs it"),
        (planned("tensorflow", backend="mpi"), TRAINER, "Trainer ships no runtime for MPI"),
        (planned("horovod"), Cluster(is_assumed=False), "over Gloo"),
        (planned("plain"), Cluster(), "no Kubeflow operator runs `framework: plain`: `backend: native` runs it"),
        (planned("mxnet", replicas={"n_ps": 0}), OLD, "needs at least one Server: write `n_ps: 1`"),
        (planned("pytorch", kubernetes={"runtime": "mine"}), Cluster(is_assumed=False), "`runtime: mine` needs"),
    ],
)  # fmt: skip
def test_what_a_cluster_cannot_serve_is_reported_before_anything_is_submitted(
    made: Plan, cluster: Cluster, said: str
) -> None:
    with pytest.raises(CallError, match=said):
        BACKEND.render(made, ClusterTarget(cluster=cluster))


def test_workers_may_come_and_go() -> None:
    made = planned("pytorch", "torchrun train.py", kubernetes={"min_workers": 1, "max_workers": 7})
    found = job(made)
    assert found["spec"]["elasticPolicy"] | {"rdzvId": ""} == {
        "minReplicas": 2,  # the master is one of them
        "maxReplicas": 8,
        "rdzvBackend": "c10d",
        "rdzvId": "",
    }
    assert {name: each["replicas"] for name, each in found["spec"]["pytorchReplicaSpecs"].items()} == {"Worker": 4}
    assert faults_of(rendered(made)) == []
    assert json.loads(BACKEND.render(made).files["plan.json"])["meets"] == [], "nobody waits for all of them"


@pytest.mark.parametrize(
    ("made", "cluster", "said"),
    [
        (planned("jax", kubernetes={"min_workers": 1}), Cluster(), "are for PyTorchJobs: a JAXJob"),
        (planned("horovod", kubernetes={"max_workers": 9}), Cluster(), "are for PyTorchJobs: an MPIJob"),
        (
            planned("pytorch", "torchrun x.py", kubernetes={"min_workers": 1}),
            TRAINER,
            "are for PyTorchJobs: a TrainJob",
        ),
        (planned("pytorch", replicas={"n_workers": 0}, kubernetes={"min_workers": 1}), Cluster(), "a run of one pod"),
        (
            planned("pytorch", "torchrun x.py", kubernetes={"min_workers": 4}),
            Cluster(),
            "`n_workers: 3` must be between",
        ),
        (planned("pytorch", "torchrun x.py", kubernetes={"max_workers": 2}), Cluster(), "and `max_workers: 2`"),
        (planned("pytorch", kubernetes={"min_workers": 1}), Cluster(), "need `torchrun` in `run.cmd`"),
    ],
)
def test_elastic_runs_that_would_not_be(made: Plan, cluster: Cluster, said: str) -> None:
    with pytest.raises(CallError, match=said):
        BACKEND.render(made, ClusterTarget(cluster=cluster))


def test_kueue_queues_the_job_by_its_label() -> None:
    for made, cluster in (
        (planned("pytorch"), KUEUE),
        (planned("horovod"), KUEUE),
        (planned("pytorch"), TRAINER._replace(gang="kueue", queues=("team",))),
    ):
        found = rendered(made, cluster)
        assert [each["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") for each in found] == [None, "team"]
        assert "schedulingPolicy" not in found[-1]["spec"].get("runPolicy", {})


def test_what_kueue_does_not_know_is_not_said_to_be_queued() -> None:
    cluster = OLD._replace(gang="kueue", queues=("team",))
    with pytest.raises(CallError, match=r"Kueue does not queue an MXJob of kubeflow.org/v1"):
        rendered(planned("mxnet", replicas={"n_ps": 1}, kubernetes={"queue": "team"}), cluster)
    found = rendered(planned("mxnet", replicas={"n_ps": 1}), cluster)  # nobody asked for a queue
    assert not any("kueue.x-k8s.io/queue-name" in one["metadata"]["labels"] for one in found)


def test_volcano_is_informed_of_the_gang_by_us_and_by_the_operator() -> None:
    made = planned("pytorch", kubernetes={"queue": "team", "priority_class": "high"})
    _, group, found = rendered(made, VOLCANO)
    assert found["spec"]["runPolicy"]["schedulingPolicy"] == {
        "minAvailable": 4,
        "queue": "team",
        "priorityClass": "high",
    }
    assert (group["metadata"]["name"], group["spec"]["minMember"], group["spec"]["queue"]) == ("phalanx-r1", 4, "team")
    for template in templates_of(found):
        assert template["spec"]["schedulerName"] == "volcano"
        assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "phalanx-r1"
    assert faults_of([group, found]) == []


def test_an_elastic_gang_begins_with_its_least() -> None:
    made = planned("pytorch", "torchrun x.py", kubernetes={"min_workers": 1})
    _, group, found = rendered(made, VOLCANO)
    assert (group["spec"]["minMember"], found["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"]) == (2, 2)


def test_the_gang_of_mpi_is_not_called_as_the_one_that_its_operator_would_make() -> None:
    _, group, found = rendered(planned("tensorflow", backend="mpi"), VOLCANO)
    name = group["metadata"]["name"]
    assert name not in (found["metadata"]["name"], "phalanx-r1")
    assert group["spec"] == {"minMember": 2}  # the launcher comes when the workers are there
    for template in templates_of(found):
        assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name


def test_a_gang_that_only_a_runtime_can_make() -> None:
    cluster = TRAINER._replace(gang="volcano")
    assert rendered(planned("pytorch"), cluster)[-1]["kind"] == "TrainJob"
    with pytest.raises(CallError, match="the runtime of a TrainJob decides"):
        rendered(planned("pytorch", kubernetes={"gang": "volcano"}), cluster)


def test_agents_and_people_have_the_same_plan() -> None:
    made = planned("horovod")
    done = BACKEND.render(made, ClusterTarget())
    owner = json.loads(done.files["manifests.json"])[0]
    carried = json.loads(gzip.decompress(b64decode(owner["binaryData"]["plan.json.gz"])))
    assert carried == json.loads(done.files["plan.json"])
    assert carried["launch"] == "own"


@pytest.mark.parametrize(("made", "cluster"), ALL)
def test_fitting_a_plan_twice_changes_nothing(made: Plan, cluster: Cluster) -> None:
    target = ClusterTarget(cluster=cluster)
    once = backend.fitted(made, target)
    assert backend.fitted(once, target) == once
    assert backend.objects(once, target) == backend.objects(made, target)


def test_a_timeout_ends_pods_and_not_the_job_which_would_take_their_logs_along() -> None:
    found = job(planned("pytorch", timeout="1h"))
    assert "activeDeadlineSeconds" not in found["spec"]["runPolicy"]
    seconds = {template["spec"]["activeDeadlineSeconds"] for template in templates_of(found)}
    assert min(seconds) > 3600


def test_secrets_that_differ_between_roles_come_from_keys_of_their_own() -> None:
    own = {**SMALL, "env_vars": [["API_TOKEN", "of-workers"]]}
    made = planned("pytorch", env_vars=[["API_TOKEN", "of-master"]], replicas={"default_worker": own})
    found = rendered(made)
    specs = found[-1]["spec"]["pytorchReplicaSpecs"]
    keys = {
        name: [
            each["valueFrom"]["secretKeyRef"]["key"]
            for each in entry["template"]["spec"]["containers"][0]["env"]
            if each["name"] == "API_TOKEN"
        ]
        for name, entry in specs.items()
    }
    assert keys["Master"] == []
    assert keys["Worker"][0] in found[1]["stringData"]
    assert list(secrets_outside(found, ["of-workers", "of-master"])) == []


@pytest.mark.parametrize(("made", "cluster"), ALL)
def test_an_image_that_is_built_for_the_run_is_in_all_of_its_pods(made: Plan, cluster: Cluster) -> None:
    asked = replace(made, build=Build(image="python:3.12", build_steps=("pip install numpy",)))
    found = rendered(asked, cluster, Settings(registry="registry.example/team"))
    assert "Job" in [each["kind"] for each in found]  # which builds it
    text = json.dumps(job_of(found))
    assert "registry.example/team/default:" in text
    assert "python:3.12" not in text


def test_five_hundred_replicas_are_quick() -> None:
    made = planned("pytorch", replicas={"n_workers": 499})
    began = time.process_time()
    found = job(made)
    assert time.process_time() - began < 5
    assert found["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 499
