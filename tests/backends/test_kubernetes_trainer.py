"""TrainJobs: what of a run they can express, and what they cannot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes import kubeflow, operators
from phalanx.backends.kubernetes.operators import USUAL
from phalanx.backends.kubernetes.place import Cluster, Place, Settings, Store
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from tests.backends.kubernetes_schemas import faults_of
from tests.backends.test_kubernetes_operators import SMALL, TRAINER, job, planned
from tests.backends.test_local import HOSTILE


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
    place = Place(Settings(stores={"images": Store(claim="datasets")}), TRAINER)
    found: Any = kubeflow.job_of(kubeflow.objects(made, place))
    node = patches(found)["node"]
    assert found["spec"]["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "1"}}
    assert node["spec"]["nodeSelector"] == {"pool": "fast"}
    assert node["spec"]["securityContext"]["runAsNonRoot"] is True
    assert {"persistentVolumeClaim": {"claimName": "datasets"}}.items() <= {
        key: value for volume in node["spec"]["volumes"] for key, value in volume.items()
    }.items()
    assert any(mount["mountPath"] == "/data/images" for mount in node["spec"]["containers"][0]["volumeMounts"])
    assert found["spec"]["activeDeadlineSeconds"] == operators.deadline_s(made) > 3600
    assert faults_of([found]) == []


def test_secrets_are_named_one_by_one() -> None:
    made = planned("pytorch", env_vars=[["API_TOKEN", "hush"]])
    place = Place(Settings(server="https://phalanx.example"), TRAINER)
    found: Any = kubeflow.job_of(kubeflow.objects(made, place))
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


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"kubernetes": {"repository": "https://example.org/x.git"}}, "code from git"),
        ({"secret_refs": ["wandb"]}, r"`secret_refs: \[wandb\]`"),
        ({"config_map_refs": ["defaults"]}, r"`config_map_refs: \[defaults\]`"),
        ({"kubernetes": {"priority_class": "high"}}, "`priorityClassName` of pods"),
        ({"kubernetes": {"pod": {"spec": {"runtimeClassName": "nvidia"}}}}, "`runtimeClassName` of pods"),
        ({"kubernetes": {"pod": {"spec": {"containers": [{"name": "side", "image": "x"}]}}}}, "the container `side`"),
        (
            {"kubernetes": {"pod": {"spec": {"containers": [{"name": "phalanx", "tty": True}]}}}},
            "`tty` of containers",
        ),
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


def test_a_runtime_of_the_clusters_own_runs_whatever_has_one_type_of_pods() -> None:
    found = job(planned("tensorflow", kubernetes={"runtime": "mine"}), TRAINER)
    assert found["spec"]["runtimeRef"]["name"] == "mine"
    with pytest.raises(CallError, match="a TrainJob has pods of one type, and this run has a `ps` as well"):
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


def test_the_container_unpacks_the_code_and_no_shell_reads_the_command(tmp_path: Path) -> None:
    written = " ".join(text for text in HOSTILE if text and text == " ".join(text.split()))
    made = planned("pytorch", written)
    found = job(made, TRAINER)["spec"]["trainer"]
    (tmp_path / "start.sh").write_text('echo "$1"; shift; [ $# -eq 0 ] || printf "%s\\0" "$@"\n')
    command = [word.replace("/phalanx/job", str(tmp_path)) for word in found["command"]]
    arguments = [word.replace("$$", "$") for word in found["args"]]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == f"prepare\nrun\nbash\0-c\0{made.command}\0"


def test_an_image_with_the_code_in_it_is_not_unpacked() -> None:
    found = job(planned("pytorch", kubernetes={"code": "image"}), TRAINER)
    assert found["spec"]["trainer"]["command"] == ["/bin/sh", "/phalanx/job/start.sh", "run"]
