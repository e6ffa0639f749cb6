"""TrainJobs: what of a run they can express, and what they cannot."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent import train_job
from phalanx.backends.kubernetes.cluster.assumed_offer import OFFLINE
from phalanx.backends.kubernetes.cluster.discovery import discover, survey
from phalanx.backends.kubernetes.observe import attempt_objects, states
from phalanx.backends.kubernetes.operators import backend, train_jobs
from phalanx.backends.kubernetes.operators.job_kinds import USUAL
from phalanx.backends.kubernetes.render.payload import start_script
from phalanx.backends.kubernetes.render.volumes import SHM_AT
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget, DataVolume, Settings
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from phalanx.spec.model import Build
from tests.agent.pods import Pod
from tests.agent.running import wait_for
from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.backends.kubernetes.operator_objects import job_of
from tests.backends.kubernetes.schemas import faults_of
from tests.backends.kubernetes.test_discovery import asked, named
from tests.backends.kubernetes.test_operators import SMALL, TRAINER, job, planned
from tests.backends.test_local import HOSTILE
from tests.leftovers import PATIENCE_S, Marked, Moment, marked


def patches(found: Any) -> dict[str, Any]:
    (patch,) = found["spec"]["runtimePatches"]
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return {each["name"]: each["template"]["spec"]["template"] for each in jobs}


@pytest.mark.parametrize(
    ("framework", "runtime"),
    [
        ("pytorch", "torch-distributed"),
        ("deepspeed", "torch-distributed"),
        ("jax", "jax-distributed"),
        ("xgboost", "xgboost-distributed"),
    ],
)
def test_a_framework_has_the_runtime_that_trainer_ships(framework: str, runtime: str) -> None:
    found = job(planned(framework), TRAINER)
    assert found["spec"]["runtimeRef"]["name"] == runtime
    assert found["spec"]["trainer"]["numNodes"] == 4
    assert list(patches(found)) == ["node"]
    assert faults_of([found]) == []


def test_the_older_operator_is_taken_where_both_are_unless_a_runtime_is_named() -> None:
    both = Cluster(kinds={**TRAINER.kinds, **USUAL}, is_assumed=False)
    assert job(planned("pytorch"), both)["kind"] == "PyTorchJob"
    found = job(planned("pytorch", kubernetes={"runtime": "mine"}), both)
    assert (found["kind"], found["spec"]["runtimeRef"]["name"]) == ("TrainJob", "mine")


def test_a_file_that_names_a_runtime_assumes_trainer_until_the_cluster_is_asked() -> None:
    """A file is checked before it goes anywhere."""
    made = planned("pytorch", kubernetes={"runtime": "mine"})
    assert job(made, OFFLINE)["kind"] == "TrainJob"
    with pytest.raises(CallError, match="`runtime: mine` needs Trainer, which is not on this cluster: it has PyTor"):
        job(made, Cluster(kinds={"PyTorchJob": ("kubeflow.org/v1",)}, is_assumed=False))


def test_members_are_counted_by_the_index_of_their_job() -> None:
    found = job(planned("pytorch"), TRAINER)
    env = {each["name"]: each.get("value") for each in found["spec"]["trainer"]["env"]}
    assert env["PHALANX_MEMBERS"] == "master-0,worker-0,worker-1,worker-2"
    assert "PHALANX_POD_INDEX" not in env
    assert env["MASTER_ADDR"] == "phalanx-r1-node-0-0.phalanx-r1"
    assert not any(name.startswith("PET_") for name in env)  # reserved: the webhook refuses them


def test_resources_volumes_security_and_places_are_laid_over() -> None:
    made = planned(
        "pytorch",
        node_selector={"pool": "fast"},
        data_refs=["images"],
        timeout="1h",
        replicas={"default_worker": {**SMALL, "node_selector": {"pool": "fast"}, "data_refs": ["images"]}},
    )
    target = ClusterTarget(Settings(stores={"images": DataVolume(claim="datasets")}), TRAINER)
    found: Any = job_of(backend.objects(made, target))
    node = patches(found)["node"]
    assert found["spec"]["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "1"}}
    assert node["spec"]["nodeSelector"] == {"pool": "fast"}
    assert node["spec"]["securityContext"]["runAsNonRoot"] is True
    assert {"persistentVolumeClaim": {"claimName": "datasets"}}.items() <= {
        key: value for volume in node["spec"]["volumes"] for key, value in volume.items()
    }.items()
    assert any(mount["mountPath"] == "/data/images" for mount in node["spec"]["containers"][0]["volumeMounts"])
    assert "activeDeadlineSeconds" not in found["spec"]  # it would count the time in which pods wait for a node
    assert faults_of([found]) == []


def test_secrets_are_named_one_by_one() -> None:
    made = planned("pytorch", env_vars=[["API_TOKEN", "hush"]])
    target = ClusterTarget(Settings(server="https://phalanx.example"), TRAINER)
    found: Any = job_of(backend.objects(made, target))
    keys = [
        each["valueFrom"]["secretKeyRef"]
        for each in found["spec"]["trainer"]["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    ]
    assert keys == [
        {"name": "phalanx-r1", "key": "API_TOKEN", "optional": True},
        {"name": "phalanx-r1", "key": "PHALANX_RUN_TOKEN", "optional": True},
    ]
    assert "hush" not in json.dumps(found)


def laid(fields: dict[str, Any]) -> dict[str, Any]:
    """Over our container."""
    return {"kubernetes": {"pod": {"spec": {"containers": [{"name": "phalanx", **fields}]}}}}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"kubernetes": {"repository": "https://example.org/x.git"}}, "code from git"),
        ({"secret_refs": ["wandb"]}, r"`secret_refs: \[wandb\]`"),
        ({"config_map_refs": ["defaults"]}, r"`config_map_refs: \[defaults\]`"),
        ({"kubernetes": {"priority_class": "high"}}, "`priorityClassName` of pods"),
        ({"kubernetes": {"pod": {"spec": {"runtimeClassName": "nvidia"}}}}, "`runtimeClassName` of pods"),
        ({"kubernetes": {"pod": {"spec": {"containers": [{"name": "side", "image": "x"}]}}}}, "the container `side`"),
        ({"kubernetes": {"pod": {"spec": {"activeDeadlineSeconds": 60}}}}, "`activeDeadlineSeconds` of pods"),
        (laid({"tty": True}), "`tty` of containers"),
        (laid({"ports": [{"containerPort": 80}]}), "`ports` of containers"),
        (laid({"env": [{"name": "PET_NNODES", "value": "9"}]}), "the variable PET_NNODES, which Trainer sets"),
        (
            laid({"volumeMounts": [{"name": "run", "mountPath": "/elsewhere"}]}),
            "one volume or claim, `run`, in several places: /phalanx/run, /elsewhere",
        ),
        ({"kubernetes": {"ttl": "1h"}}, "`ttl`: it is removed"),
        ({"image_pull_secrets": ["a", "a"]}, "the image pull secret `a` twice"),
        ({"env_vars": [[f"V{number}", "x"] for number in range(130)]}, "1.. variables, at most 128 are allowed"),
    ],
)
def test_what_it_cannot_express_is_an_error(environment: dict[str, Any], said: str) -> None:
    with pytest.raises(CallError, match=f"a TrainJob cannot express this .*{said}.*`backend: native` runs it"):
        job(planned("pytorch", **environment), TRAINER)


def test_an_account_may_be_named() -> None:
    found = job(planned("pytorch", service_account="trainer"), TRAINER)
    assert patches(found)["node"]["spec"]["serviceAccountName"] == "trainer"


@pytest.mark.parametrize(
    ("made", "cluster", "said"),
    [
        (planned("jax"), TRAINER._replace(runtimes=("torch-distributed",)), "no runtime `jax-distributed` .*torch-dis"),
        (planned("horovod"), TRAINER._replace(runtimes=("a", "b")), r"for MPI: name one .*\(a, b\)"),
    ],
)
def test_runtimes_that_are_not_there(made: Plan, cluster: Cluster, said: str) -> None:
    with pytest.raises(CallError, match=said):
        job(made, cluster)


def test_a_runtime_of_the_cluster_runs_anything_with_one_type_of_pods() -> None:
    found = job(planned("tensorflow", kubernetes={"runtime": "mine"}), TRAINER)
    assert found["spec"]["runtimeRef"]["name"] == "mine"
    with pytest.raises(CallError, match="a TrainJob has pods of one type, and this run also has a `ps`"):
        job(planned("tensorflow", replicas={"n_ps": 1}, kubernetes={"runtime": "mine"}), TRAINER)


def test_a_runtime_for_mpi_has_a_launcher_and_nodes() -> None:
    found = job(planned("horovod", kubernetes={"runtime": "mpi"}), TRAINER)
    templates = patches(found)
    members = {name: each["metadata"]["annotations"]["phalanx.dev/members"] for name, each in templates.items()}
    assert members == {"launcher": "master-0", "node": "worker-0,worker-1,worker-2"}
    assert found["spec"]["trainer"]["args"][:3] == ["mpirun", "-np", "4"]
    assert "--host" not in found["spec"]["trainer"]["args"]  # the runtime knows them, and how to get there
    assert found["spec"]["trainer"]["numProcPerNode"] == 1
    assert faults_of([found]) == []


def test_what_trainer_reserves_for_xgboost_is_left_to_the_agent() -> None:
    """It counts a worker for every device, and we have one for every process."""
    made = planned("xgboost")
    objects = backend.objects(made, ClusterTarget(cluster=TRAINER))
    found: Any = job_of(objects)
    assert not {each["name"] for each in found["spec"]["trainer"]["env"]} & {*train_jobs.RESERVED}
    assert "DMLC_NUM_WORKER" in made.shared
    assert not {"DMLC_NUM_WORKER", "DMLC_TASK_ID"} & {*json.loads(objects[0]["data"]["place.json"])["yields"]}


def test_launcher_and_hosts_have_the_image_of_their_runtime_unless_the_file_names_one() -> None:
    made = planned("horovod", kubernetes={"runtime": "mpi"})
    assert "image" not in job(made, TRAINER)["spec"]["trainer"]
    named = replace(made, build=Build(image="mine:1"))
    assert job(named, TRAINER)["spec"]["trainer"]["image"] == "mine:1"


def test_runtimes_of_the_namespace_are_discovered(tmp_path: Path) -> None:
    server = FakeApiServer(operators=["trainer"])
    server.put(named("TrainingRuntime", "trainer.kubeflow.org/v1alpha1", "ours"))
    server.put(named("TrainingRuntime", "trainer.kubeflow.org/v1alpha1", "theirs", "kube-system"))
    with asked(server, tmp_path) as api:
        assert discover(api).own_runtimes == ("ours",)
        assert survey(api).as_json()["runtimes"] == ["ours"]
        server.deny("list", "trainingruntimes")
        assert discover(api).own_runtimes == ()


def test_a_runtime_of_the_namespace_is_named_as_such() -> None:
    cluster = TRAINER._replace(runtimes=("torch-distributed", "ours"), own_runtimes=("ours", "mine"))
    for name, kind in {"torch-distributed": "Cluster", "ours": "", "mine": ""}.items():
        found = job(planned("pytorch", kubernetes={"runtime": name}), cluster)["spec"]["runtimeRef"]
        assert (found["kind"], found["name"]) == (f"{kind}TrainingRuntime", name)
    with pytest.raises(CallError, match=r"no runtime `theirs` .*: torch-distributed, ours, mine;"):
        job(planned("pytorch", kubernetes={"runtime": "theirs"}), cluster)


def test_one_container_prepares_and_runs_and_no_shell_reads_the_command() -> None:
    written = " ".join(text for text in HOSTILE if text and text == " ".join(text.split()))
    made = planned("pytorch", written)
    found = job(made, TRAINER)["spec"]["trainer"]
    assert found["command"] == ["/bin/sh", "/phalanx/job/start.sh", "train-job", "prepare"]
    assert [word.replace("$$", "$") for word in found["args"]] == ["bash", "-c", made.command]


def test_an_image_with_the_code_in_it_is_not_unpacked() -> None:
    found = job(planned("pytorch", kubernetes={"code": "image"}), TRAINER)["spec"]["trainer"]
    assert found["command"][-2:] == ["train-job", "run"]


def test_agents_and_the_shell_that_stands_in_for_them_agree_about_restarted_containers() -> None:
    (seconds,) = re.findall(r"seconds=(\d+)", start_script())
    assert int(seconds) == train_job.HELD_S
    assert f"{train_job.SHARED_MEMORY}\n" in start_script()
    assert train_job.SHARED_MEMORY == SHM_AT
    assert f"/{train_job.MARKER}" in start_script()


class Container:
    """The container of a TrainJob on this machine. It is told to end while it prepares its replica."""

    def __init__(self, root: Path, shell: str = "/bin/sh") -> None:
        self.root, self.ready = root, root / "ready"
        code = {"kind": "none", "working": str(root)}
        self.pod = Pod(root, "sleep 600", steps=["echo > ready; sleep 600"], code=code)
        (root / "job" / "start.sh").write_text(start_script())
        (root / "shm").mkdir()
        found = job(planned("pytorch"), TRAINER)["spec"]["trainer"]
        self.command = [shell, *(word.replace("/phalanx", str(root)) for word in found["command"][1:]), *found["args"]]

    def started(self, here: Marked, **variables: str) -> subprocess.Popen[bytes]:
        return here.start(self.command, self.pod.variables(**variables), cwd=self.root)


@pytest.mark.slow
def test_who_prepares_hears_that_it_shall_end(tmp_path: Path) -> None:
    container = Container(tmp_path)
    with marked() as here:
        process = container.started(here)
        wait_for(container.ready.exists)
        process.terminate()
        assert process.wait(PATIENCE_S) == 143
        assert here.left() == []


@pytest.mark.slow
def test_whenever_a_container_is_asked_to_end_none_of_its_processes_stays(tmp_path: Path) -> None:
    """At every moment at which its shell acts on signals. What becomes of the agent's, `test_train_job` knows."""
    for number in count(1):
        container, moment = Container(tmp_path / str(number), "bash"), Moment(tmp_path, number)
        with marked() as here:
            process = container.started(here, **moment.variables)
            here.wait_for_any(process, moment.file, container.ready)
            if not moment.has_come:  # the agent has come first
                break
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
            assert here.left() == []
    assert number > 10


def pod_of_job_set(*, last: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    status = {"name": "node", "state": state, "restartCount": 1 if last else 0}
    return {
        "metadata": {"labels": {attempt_objects.JOB_SET: "phalanx-r1"}},
        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "node"}]},
        "status": {"phase": "Running", "containerStatuses": [{**status, **({"lastState": last} if last else {})}]},
    }


def test_an_end_is_one_though_a_kubelet_starts_the_container_again() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    assert states.pod_end(pod_of_job_set(running={})) is None
    for pod in (
        pod_of_job_set(**ended),
        pod_of_job_set(running={}, last=ended),
        pod_of_job_set(waiting={}, last=ended),
    ):
        outcome = states.pod_end(pod)
        assert outcome is not None
        assert (outcome.cause, outcome.code) == ("error", 3)
        others = {**pod, "metadata": {}}  # a PyTorchJob with `restart_policy: OnFailure` goes on
        assert states.pod_end(others) is None
    killed = states.pod_end(pod_of_job_set(running={}, last={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))
    assert killed is not None
    assert killed.cause == "memory"


def test_what_keeps_pods_from_being_made_is_said_by_the_job_of_a_job_set() -> None:
    work = {**job(planned("pytorch"), TRAINER), "status": {}}
    about = {"kind": "Job", "name": "phalanx-r1-node-0", "uid": "of the Job"}
    said = "Error creating: pods is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=4, limited: cpu=4"
    event = {
        "involvedObject": about,
        "reason": "FailedCreate",
        "message": said,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    assert attempt_objects.queued_as(work) in attempt_objects.topics_of(event)  # by which it is found
    group = states.AttemptObjects("r1", 1, works=[work], events=[event])
    assert states.waiting_for(group).startswith("the quota `q` is used up")
    other = {**event, "involvedObject": {**about, "name": "phalanx-r10-node-0"}}
    assert attempt_objects.queued_as(work) not in attempt_objects.topics_of(other)
    assert states.waiting_for(group._replace(events=[other])) == "its pods are being created"
