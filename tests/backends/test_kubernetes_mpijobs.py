"""MPIJobs: who starts the ranks, how it reaches the other pods, and what it passes on."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes import kubeflow, mpijobs, operators
from phalanx.backends.kubernetes.operators import MPIJOB, MPIJOB_V1
from phalanx.backends.kubernetes.place import Cluster, Place
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from tests.backends.kubernetes_schemas import faults_of
from tests.backends.test_kubernetes_operators import OLD, SMALL, job, planned

MPI = planned("tensorflow", backend="mpi")
GPUS = {"resources": {"gpu": {"requests": 2, "limits": 2}}}


def specs(made: Plan, cluster: Cluster | None = None) -> Any:
    return job(made, cluster)["spec"]["mpiReplicaSpecs"]


def main(entry: Any) -> Any:
    (box,) = entry["template"]["spec"]["containers"]
    return box


def test_the_first_replica_starts_all_ranks_and_is_one_itself() -> None:
    found = job(MPI)
    assert (found["apiVersion"], found["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert {name: each["replicas"] for name, each in found["spec"]["mpiReplicaSpecs"].items()} == {
        "Launcher": 1,
        "Worker": 2,
    }
    assert found["spec"]["runLauncherAsWorker"] is True
    assert found["spec"]["slotsPerWorker"] == 1
    assert found["spec"]["runPolicy"]["backoffLimit"] == 0
    launcher = main(found["spec"]["mpiReplicaSpecs"]["Launcher"])
    env = {each["name"]: each.get("value") for each in launcher["env"]}
    assert env["PHALANX_MEMBERS"] == "worker-0"
    assert launcher["args"][:7] == [
        "mpirun", "-np", "3", "--bind-to", "none", "--host",
        "phalanx-r1-launcher:1,phalanx-r1-worker-0.phalanx-r1:1,phalanx-r1-worker-1.phalanx-r1:1",
    ]  # fmt: skip
    assert launcher["args"][-3:] == ["bash", "-c", "python train.py"]


def test_variables_are_passed_on_by_name_alone() -> None:
    made = planned("tensorflow", backend="mpi", env_vars=[["MODE", "fast one"], ["API_TOKEN", "hush"]])
    arguments = main(specs(made)["Launcher"])["args"]
    passed = [arguments[number + 1] for number, word in enumerate(arguments) if word == "-x"]
    assert {"MODE", "API_TOKEN", "PHALANX_RUN_ID", "PHALANX_TRACK", "PYTHONPATH", "PATH"} <= set(passed)
    assert not any(name.startswith("OMPI_") or "=" in name for name in passed)
    assert "hush" not in " ".join(arguments)


def test_ranks_of_horovod_meet_over_mpi_and_not_over_gloo() -> None:
    made = kubeflow.fitted(planned("horovod"), Place())
    first, *others = made.replicas
    assert made.launch == "own"
    assert (made.service, made.meets) == (None, ())
    assert first.argv[:3] == ("mpirun", "-np", "4")
    assert not any(other.argv for other in others)
    wired = {*made.shared, *(name for replica in made.replicas for name in (*replica.environment, *replica.defaults))}
    assert not any(name.startswith("HOROVOD_") for name in wired)
    assert first.defaults["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


def test_what_a_user_says_to_horovod_stays() -> None:
    made = kubeflow.fitted(planned("horovod", env_vars=[["HOROVOD_TIMELINE", "/tmp/t.json"]]), Place())
    assert made.replicas[0].environment["HOROVOD_TIMELINE"] == "/tmp/t.json"


def test_a_replica_with_several_gpus_has_a_slot_for_each() -> None:
    made = planned("horovod", resources=GPUS["resources"], replicas={"n_workers": 1, "default_worker": GPUS})
    found = job(made)
    assert found["spec"]["slotsPerWorker"] == 2
    arguments = main(found["spec"]["mpiReplicaSpecs"]["Launcher"])["args"]
    assert arguments[2] == "4"
    assert "phalanx-r1-launcher:2,phalanx-r1-worker-0.phalanx-r1:2" in arguments
    for entry in found["spec"]["mpiReplicaSpecs"].values():
        assert main(entry)["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_a_command_that_starts_the_ranks_itself_stays_as_it_is() -> None:
    made = planned("tensorflow", "mpirun -np 6 python train.py", backend="mpi")
    assert main(specs(made)["Launcher"])["args"] == ["bash", "-c", "mpirun -np 6 python train.py"]
    env = {each["name"]: each.get("value") for each in main(specs(made)["Launcher"])["env"]}
    assert env["OMPI_MCA_plm_rsh_args"] == mpijobs.SSH  # so that it finds the servers all the same


def test_one_worker_is_launcher_and_worker() -> None:
    made = planned("tensorflow", backend="mpi", replicas={"n_workers": 1})
    found = job(made)
    assert list(found["spec"]["mpiReplicaSpecs"]) == ["Launcher"]  # a Worker with no replicas is refused
    assert found["spec"]["launcherCreationPolicy"] == "AtStartup"


def test_ranks_that_start_by_themselves_are_no_mpijob() -> None:
    with pytest.raises(CallError, match="`launcher: direct` has every rank start by itself"):
        job(planned("tensorflow", backend="mpi", replicas={"launcher": "direct"}))


def test_workers_that_differ_are_named() -> None:
    made = planned("tensorflow", backend="mpi", replicas={"worker": [{"index": 2, **GPUS}]})
    with pytest.raises(CallError, match=r"of an MPIJob are alike, and worker-2 has settings of its own \(resources\)"):
        job(made)


def test_hosts_have_the_code_and_wait_for_the_launcher() -> None:
    worker = specs(MPI)["Worker"]
    box = main(worker)
    assert box["command"][:2] == ["/bin/sh", "-c"]
    assert box["command"][3:] == ["sshd", "2222", "/phalanx/ssh"]
    assert "args" not in box
    assert box["readinessProbe"]["tcpSocket"] == {"port": 2222}
    mounts = {mount["mountPath"] for mount in box["volumeMounts"]}
    assert {"/phalanx/code", "/phalanx/agent"} <= mounts
    assert [step["name"] for step in worker["template"]["spec"]["initContainers"]] == ["prepare"]


def test_a_server_that_runs_as_root_has_the_rights_that_it_needs() -> None:
    pod = {"spec": {"securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}}
    entries = specs(planned("tensorflow", backend="mpi", kubernetes={"pod": pod}))
    assert "SYS_CHROOT" in main(entries["Worker"])["securityContext"]["capabilities"]["add"]
    assert "add" not in main(entries["Launcher"])["securityContext"]["capabilities"]
    assert "add" not in main(specs(MPI)["Worker"])["securityContext"]["capabilities"]


def test_training_operator_starts_ranks_through_the_api() -> None:
    made = planned("tensorflow", backend="mpi", resources=GPUS["resources"], replicas={"default_worker": GPUS})
    found = job(made, OLD)
    assert (found["apiVersion"], found["spec"]["mainContainer"]) == ("kubeflow.org/v1", "mpi")
    assert {"runLauncherAsWorker", "sshAuthMountPath", "mpiImplementation"}.isdisjoint(found["spec"])
    assert "backoffLimit" not in found["spec"]["runPolicy"]
    launcher, worker = (found["spec"]["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    assert worker["replicas"] == 3
    assert launcher["template"]["spec"]["automountServiceAccountToken"] is True
    assert not any(main(launcher)["resources"].values())  # the devices are for the ranks
    assert main(worker)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    hosts = main(launcher)["args"][main(launcher)["args"].index("--host") + 1]
    assert hosts == "phalanx-r1-worker-0:1,phalanx-r1-worker-1:1,phalanx-r1-worker-2:1"
    assert "plm_rsh_args" not in main(launcher)["args"]
    assert worker["template"]["metadata"]["annotations"]["phalanx.dev/members"] == "host-0,host-1,host-2"
    assert {"name": "PHALANX_MEMBERS", "value": "host-0,host-1,host-2"} in main(worker)["env"]
    assert faults_of([found]) == []


def test_so_many_hosts_that_no_argument_holds_them_are_in_the_operators_file() -> None:
    made = planned("tensorflow", backend="mpi", replicas={"n_workers": 3000})
    first = mpijobs.adapted(made, MPIJOB).replicas[0]
    assert "--host" not in first.argv
    assert "--host" in mpijobs.adapted(MPI, MPIJOB).replicas[0].argv
    assert mpijobs.adapted(MPI, MPIJOB_V1).shared.get("OMPI_MCA_plm_rsh_args") is None


def command_of_hosts() -> list[str]:
    """As the kubelet hands it to the container."""
    return [word.replace("$$(", "$(") for word in main(specs(MPI)["Worker"])["command"]]


def pretend(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def served(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "LD_LIBRARY_PATH": "/l",
    }
    return subprocess.run(command_of_hosts(), env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_the_server_of_a_host_has_a_key_of_its_own_and_needs_no_rights(tmp_path: Path) -> None:
    pretend(tmp_path, "ssh-keygen", 'while [ "$1" != -f ]; do shift; done; echo key >"$2"')
    pretend(tmp_path, "sshd", 'for word; do echo "$word"; [ ! -f "$word" ] || cat "$word"; done')
    pretend(tmp_path, "id", "[ $1 = -u ] && echo 1000 || echo mpiuser")
    done = served(tmp_path)
    words = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert words[words.index("-p") + 1] == "2222"
    assert words[words.index("-h") + 2] == "key"  # it was there before the server began
    assert "AuthorizedKeysFile=/phalanx/ssh/authorized_keys" in words
    assert f"SetEnv=PATH={tmp_path}:{os.environ['PATH']} LD_LIBRARY_PATH=/l" in words
    assert {"UsePAM=no", "PidFile=none", "PasswordAuthentication=no"} <= set(words)


def test_a_user_without_a_name_is_told_before_ssh_fails(tmp_path: Path) -> None:
    pretend(tmp_path, "sshd", "echo began")
    pretend(tmp_path, "ssh-keygen", "exit 0")
    pretend(tmp_path, "id", "[ $1 = -u ] && echo 1000")
    done = served(tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert "the image has none of the number 1000" in done.stderr


def test_whatever_mpi_renders_is_restricted() -> None:
    for made in (MPI, planned("horovod"), planned("tensorflow", backend="mpi", replicas={"default_worker": SMALL})):
        assert faults_of(kubeflow.objects(made, Place())) == []
    assert operators.operated(job(MPI)) == MPIJOB
