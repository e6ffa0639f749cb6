"""MPIJobs: who starts the ranks, how it reaches the other pods, and what it passes on."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.observe.attempt_objects import members_of
from phalanx.backends.kubernetes.observe.states import pod_end
from phalanx.backends.kubernetes.operators import backend, job_kinds, mpi_jobs
from phalanx.backends.kubernetes.operators.job_kinds import MPIJOB, MPIJOB_V1
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget, Settings
from phalanx.errors import CallError
from phalanx.plan.model import Plan
from tests.backends.kubernetes.operator_objects import operated
from tests.backends.kubernetes.schemas import faults_of
from tests.backends.kubernetes.test_operators import OLD, SMALL, job, planned
from tests.leftovers import PATIENCE_S, marked

MPI = planned("tensorflow", backend="mpi")
GPUS = {"resources": {"gpu": {"requests": 2, "limits": 2}}}


def specs(made: Plan, cluster: Cluster | None = None, target: ClusterTarget | None = None) -> Any:
    if target is not None:
        return backend.objects(made, target)[-1]["spec"]["mpiReplicaSpecs"]
    return job(made, cluster)["spec"]["mpiReplicaSpecs"]


def main(entry: Any) -> Any:
    (box,) = entry["template"]["spec"]["containers"]
    return box


def command(entry: Any) -> Any:
    """What a launcher does once the others can be reached."""
    words = main(entry)["args"]
    assert words[:2] == ["/bin/sh", "-c"]
    assert words[3:8] == ["launch", "900", "2222", "/phalanx/ssh", "/etc/mpi/hostfile"]
    return words[8:]


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
    arguments = command(found["spec"]["mpiReplicaSpecs"]["Launcher"])
    assert arguments[:7] == [
        "mpirun", "-np", "3", "--bind-to", "none", "--host",
        "phalanx-r1-launcher:1,phalanx-r1-worker-0.phalanx-r1:1,phalanx-r1-worker-1.phalanx-r1:1",
    ]  # fmt: skip
    assert arguments[-3:] == ["bash", "-c", "python train.py"]


def test_variables_are_passed_on_by_name_alone() -> None:
    made = planned("tensorflow", backend="mpi", env_vars=[["MODE", "fast one"], ["API_TOKEN", "hush"]])
    arguments = main(specs(made)["Launcher"])["args"]
    passed = [arguments[number + 1] for number, word in enumerate(arguments) if word == "-x"]
    assert {"MODE", "API_TOKEN", "PHALANX_RUN_ID", "PHALANX_TRACK", "PYTHONPATH", "PATH"} <= set(passed)
    assert not any(name.startswith(("OMPI_", "PRTE_")) or "=" in name for name in passed)
    assert "hush" not in " ".join(arguments)


def test_ranks_of_horovod_meet_over_mpi_and_not_over_gloo() -> None:
    made = backend.fitted(planned("horovod"), ClusterTarget())
    first, *others = made.replicas
    assert made.launch == "own"
    assert (made.service, made.meets) == (None, ())
    assert first.argv[8:11] == ("mpirun", "-np", "4")
    assert not any(other.argv for other in others)
    wired = {*made.shared, *(name for replica in made.replicas for name in (*replica.environment, *replica.defaults))}
    assert not any(name.startswith("HOROVOD_") for name in wired)
    assert first.defaults["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


def test_what_a_user_says_to_horovod_stays() -> None:
    made = backend.fitted(planned("horovod", env_vars=[["HOROVOD_TIMELINE", "/tmp/t.json"]]), ClusterTarget())
    assert made.replicas[0].environment["HOROVOD_TIMELINE"] == "/tmp/t.json"


def test_a_replica_with_several_gpus_has_a_slot_for_each() -> None:
    made = planned("horovod", resources=GPUS["resources"], replicas={"n_workers": 1, "default_worker": GPUS})
    found = job(made)
    assert found["spec"]["slotsPerWorker"] == 2
    arguments = command(found["spec"]["mpiReplicaSpecs"]["Launcher"])
    assert arguments[2] == "4"
    assert "phalanx-r1-launcher:2,phalanx-r1-worker-0.phalanx-r1:2" in arguments
    for entry in found["spec"]["mpiReplicaSpecs"].values():
        assert main(entry)["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_a_command_that_starts_the_ranks_itself_stays_as_it_is() -> None:
    made = planned("tensorflow", "mpirun -np 6 python train.py", backend="mpi")
    assert command(specs(made)["Launcher"]) == ["bash", "-c", "mpirun -np 6 python train.py"]
    env = {each["name"]: each.get("value") for each in main(specs(made)["Launcher"])["env"]}
    assert env["OMPI_MCA_plm_rsh_args"] == mpi_jobs.SSH  # so that it finds the servers all the same
    assert env["PRTE_MCA_plm_ssh_args"] == mpi_jobs.SSH  # Open MPI 5 cannot read the other one: it has a `=` in it


def test_a_plan_that_is_fitted_stays_as_it_is() -> None:
    for made in (MPI, planned("horovod"), planned("tensorflow", "mpirun python train.py", backend="mpi")):
        once = backend.fitted(made, ClusterTarget())
        assert backend.fitted(once, ClusterTarget()) == once


def test_one_worker_is_launcher_and_worker() -> None:
    made = planned("tensorflow", backend="mpi", replicas={"n_workers": 1})
    found = job(made)
    assert list(found["spec"]["mpiReplicaSpecs"]) == ["Launcher"]  # a Worker with no replicas is refused
    assert found["spec"]["launcherCreationPolicy"] == "AtStartup"


def test_ranks_that_start_by_themselves_are_no_mpijob() -> None:
    with pytest.raises(CallError, match="`launcher: direct` starts every rank separately"):
        job(planned("tensorflow", backend="mpi", replicas={"launcher": "direct"}))


def test_workers_that_differ_are_named() -> None:
    made = planned("tensorflow", backend="mpi", replicas={"worker": [{"index": 2, **GPUS}]})
    with pytest.raises(CallError, match=r"of an MPIJob are equal, and worker-2 has different settings \(resources\)"):
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
    assert [step["name"] for step in worker["template"]["spec"]["initContainers"]] == ["prepare", "phalanx-user"]


def test_hosts_are_named_by_the_numbers_of_every_operator() -> None:
    """0.7 and later count the launcher as 0. To those before, the first host is 0: it must not be the first replica."""
    meta, box = specs(MPI)["Worker"]["template"]["metadata"], main(specs(MPI)["Worker"])
    assert meta["annotations"]["phalanx.dev/members"] == "worker-1,worker-1,worker-2"
    assert {"name": "PHALANX_MEMBERS", "value": "worker-1,worker-1,worker-2"} in box["env"]
    for number, name in (("1", "worker-1"), ("2", "worker-2"), ("0", "worker-1")):
        pod = {"metadata": {**meta, "labels": {job_kinds.REPLICA_INDEX: number}}, "spec": {"containers": [box]}}
        assert members_of(pod) == (name,)


def test_hosts_install_where_the_launcher_does() -> None:
    """mpirun tells all ranks the launcher's PATH."""
    made = planned("tensorflow", backend="mpi", python={"requirements": ["numpy"]})
    for cluster, count in ((None, 3), (OLD, 3)):
        (prepare, *_) = specs(made, cluster)["Worker"]["template"]["spec"]["initContainers"]
        variables = {each["name"]: each.get("value") for each in prepare["env"]}
        assert variables["PHALANX_MEMBERS"] == ",".join(["worker-0"] * count)
    shared = ClusterTarget(Settings(home_claim="homes"))
    (prepare, *_) = specs(made, target=shared)["Worker"]["template"]["spec"]["initContainers"]
    assert {"name": "PHALANX_MEMBERS", "value": "worker-1,worker-1,worker-2"} in prepare["env"]


def test_both_ends_have_a_user_with_a_name() -> None:
    made = planned("tensorflow", backend="mpi", resources=GPUS["resources"], replicas={"default_worker": GPUS})
    for entry in specs(made).values():
        spec = entry["template"]["spec"]
        step, box = spec["initContainers"][-1], main(entry)
        assert (step["name"], step["image"]) == ("phalanx-user", box["image"])
        assert step["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "resources" not in step  # devices are for the ranks
        assert box["volumeMounts"][-1] == {
            "name": "phalanx-users", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True
        }  # fmt: skip
        assert step["volumeMounts"][0]["name"] == spec["volumes"][-1]["name"] == "phalanx-users"
    assert main(specs(made)["Launcher"])["resources"]["limits"] == {"nvidia.com/gpu": "2"}


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("root:x:0:0:r:/root:/bin/sh", "root:x:0:0:r:/root:/bin/sh\nphalanx:x:1000:1000::/phalanx/run:/bin/sh"),
        ("a:x:1000:5:A \\n,,:/home/a:/bin/sh\nb:x:1:1::/:/b\n", "a:x:1000:5:A \\n,,:/home/a:/bin/sh\nb:x:1:1::/:/b"),
        ("a:x:1000:5::/home/a:/sbin/nologin\n\n", "a:x:1000:5::/home/a:/bin/sh"),
        ("a:x:1000:5::/home/a:/no/such/shell", "a:x:1000:5::/home/a:/bin/sh"),
        ("a:x:1000:5::/home/a:", "a:x:1000:5::/home/a:/bin/sh"),
        ("", "phalanx:x:1000:1000::/phalanx/run:/bin/sh"),
    ],
)
def test_the_list_of_users_gets_ours_where_it_is_missing_or_let_no_one_in(
    tmp_path: Path, listed: str, wanted: str
) -> None:
    pretend(tmp_path, "id", "echo 1000")
    (tmp_path / "image").write_text(listed)
    (*_, step) = specs(MPI)["Worker"]["template"]["spec"]["initContainers"]
    words = [
        word.replace("$$(", "$(").replace("/phalanx/users", str(tmp_path)).replace("/etc/passwd", f"{tmp_path}/image")
        for word in step["command"]
    ]
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "passwd").read_text() == f"{wanted}\n"


def test_a_server_that_runs_as_root_has_the_rights_that_it_needs() -> None:
    pod: Any = {"spec": {"securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}}
    entries = specs(planned("tensorflow", backend="mpi", kubernetes={"pod": pod}))
    assert "SYS_CHROOT" in main(entries["Worker"])["securityContext"]["capabilities"]["add"]
    pod["spec"]["securityContext"]["runAsUser"] = None  # the image's own, which may be root
    images = specs(planned("tensorflow", backend="mpi", kubernetes={"pod": pod}))
    assert "SYS_CHROOT" in main(images["Worker"])["securityContext"]["capabilities"]["add"]
    assert "add" not in main(entries["Launcher"])["securityContext"]["capabilities"]
    assert "add" not in main(specs(MPI)["Worker"])["securityContext"]["capabilities"]


def test_what_a_file_puts_beside_it_does_not_take_the_place_of_our_container() -> None:
    """The operator gives its keys, variables and host file to the first."""
    beside = {"name": "proxy", "image": "proxy"}
    entries = specs(planned("tensorflow", backend="mpi", kubernetes={"pod": {"spec": {"containers": [beside]}}}))
    for entry in entries.values():
        assert [each["name"] for each in entry["template"]["spec"]["containers"]] == ["mpi", "proxy"]


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
    first = mpi_jobs.adapted(made, MPIJOB).replicas[0]
    assert "--host" not in first.argv
    assert "--host" in mpi_jobs.adapted(MPI, MPIJOB).replicas[0].argv
    assert mpi_jobs.adapted(MPI, MPIJOB_V1).shared.get("OMPI_MCA_plm_rsh_args") is None


def test_a_host_that_only_stays_leaves_nothing_when_it_is_asked_to_end(tmp_path: Path) -> None:
    pretend(tmp_path, "sleep", f': >"{tmp_path}/sleeping"; exec {shutil.which("sleep")} "$1"')
    with marked() as here:
        variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        process = here.start(main(specs(MPI, OLD)["Worker"])["command"], variables)
        here.wait_for_any(process, tmp_path / "sleeping")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert here.left() == []


def command_of_hosts() -> list[str]:
    """As the kubelet hands it to the container."""
    return [word.replace("$$(", "$(") for word in main(specs(MPI)["Worker"])["command"]]


def pretend(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def served(folder: Path, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "LD_LIBRARY_PATH": "/l",
    }
    words = [*before, *command_of_hosts()]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False)


SAID = '[ "$1" != -t ] || exit 0\nfor word; do echo "$word"; [ ! -f "$word" ] || cat "$word"; done'
KEYGEN = 'while [ "$1" != -f ]; do shift; done; echo key >"$2"'


def test_the_server_of_a_host_has_a_key_of_its_own_and_needs_no_rights(tmp_path: Path) -> None:
    pretend(tmp_path, "ssh-keygen", KEYGEN)
    pretend(tmp_path, "sshd", SAID)
    pretend(tmp_path, "id", "[ $1 = -u ] && echo 1000 || echo mpiuser")
    done = served(tmp_path)
    words = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert words[words.index("-p") + 1] == "2222"
    assert words[words.index("-h") + 2] == "key"  # it was there before the server began
    assert "AuthorizedKeysFile=/phalanx/ssh/authorized_keys" in words
    assert f"SetEnv=PATH={tmp_path}:{os.environ['PATH']} LD_LIBRARY_PATH=/l" in words
    assert {"UsePAM=no", "PidFile=none", "PasswordAuthentication=no"} <= set(words)


def test_a_server_that_cannot_carry_variables_serves_without(tmp_path: Path) -> None:
    pretend(tmp_path, "ssh-keygen", KEYGEN)
    pretend(tmp_path, "sshd", f'case "$1 $*" in "-t "*SetEnv*) exit 255 ;; esac\n{SAID}')
    pretend(tmp_path, "id", "[ $1 = -u ] && echo 1000 || echo mpiuser")
    words = served(tmp_path).stdout.splitlines()
    assert words[words.index("-p") + 1] == "2222"
    assert not any(word.startswith("SetEnv") for word in words)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setcap"), reason="needs root, and setcap")
def test_a_server_with_a_right_that_its_pod_has_not_is_started_all_the_same(tmp_path: Path) -> None:
    """mpi-operator's images say `setcap CAP_NET_BIND_SERVICE=+eip /usr/sbin/sshd`."""
    tmp_path.chmod(0o755)
    program = Path("/bin/echo").resolve()
    shutil.copy(program, tmp_path / "sshd")
    subprocess.run(["setcap", "CAP_NET_BIND_SERVICE=+eip", str(tmp_path / "sshd")], check=True)
    pretend(tmp_path, "ssh-keygen", KEYGEN)
    pretend(tmp_path, "id", "[ $1 = -u ] && echo 1000 || echo mpiuser")
    for name in ("ssh-keygen", "id"):
        (tmp_path / name).chmod(0o755)
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]
    done = served(tmp_path, before=bare)
    assert done.stdout.splitlines()[-1].startswith("-D -e -f /dev/null"), done.stderr


def test_a_user_without_a_name_is_reported_before_ssh_fails(tmp_path: Path) -> None:
    pretend(tmp_path, "sshd", "echo began")
    pretend(tmp_path, "ssh-keygen", "exit 0")
    pretend(tmp_path, "id", "[ $1 = -u ] && echo 1000")
    done = served(tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert "the image has none of the number 1000" in done.stderr


def test_why_a_host_refuses_stands_in_the_status_of_its_pod(tmp_path: Path) -> None:
    words = [word.replace("/dev/termination-log", str(tmp_path / "log")) for word in command_of_hosts()]
    (tmp_path / "log").touch()
    words[2] = words[2].replace("echo /usr/sbin/sshd", "echo /nowhere")
    for name in ("id", "mktemp"):
        pretend(tmp_path, name, "exit 0")
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == 78
    state = {"terminated": {"exitCode": 78, "reason": "Error", "message": (tmp_path / "log").read_text()}}
    spec = {"containers": [{"name": "mpi"}]}
    pod = {"spec": spec, "status": {"phase": "Failed", "containerStatuses": [{"name": "mpi", "state": state}]}}
    outcome = pod_end({"metadata": {}, **pod})
    assert outcome is not None
    assert (outcome.cause, outcome.code) == ("setup", 78)
    assert "its image has no sshd: use one with openssh-server" in outcome.message


def launched(folder: Path, *words: str, hosts: str, patience: str = "900") -> subprocess.CompletedProcess[str]:
    """A launcher's command with these programs beside the machine's."""
    script = (
        main(specs(MPI)["Launcher"])["args"][2].replace("$$(", "$(").replace("/tmp/phalanx-ssh", str(folder / "own"))
    )
    (folder / "hostfile").write_text(hosts)
    (folder / "id_rsa").write_text("the key\n")
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    arguments = [patience, "2222", str(folder), str(folder / "hostfile")]
    return subprocess.run(
        ["/bin/sh", "-c", script, "launch", *arguments, *words],
        env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def test_a_launcher_waits_until_ssh_answers_everywhere(tmp_path: Path) -> None:
    """The operator may start it first, and the names of the others are there before they listen."""
    answer = 'echo "[$host]:2222 ssh-ed25519 AAAA"'
    late = f'[ "$host" != two.svc ] || [ -e "{tmp_path}/asked" ] || continue'
    pretend(tmp_path, "uname", "echo job-launcher")
    pretend(tmp_path, "ssh", "exit 0")
    pretend(
        tmp_path,
        "ssh-keyscan",
        f'echo "$*" >>"{tmp_path}/log"\nfor host; do case $host in *.svc) {late}; {answer} ;; esac; done\n'
        f'[ ! -s "{tmp_path}/log" ] || touch "{tmp_path}/asked"',
    )
    hosts = "job-launcher.job.team.svc slots=2\none.svc slots=2\ntwo.svc slots=2\n"
    done = launched(tmp_path, "echo", "a  b", "$(c)", hosts=hosts)
    assert (done.returncode, done.stdout) == (0, "a  b $(c)\n"), done.stderr
    assert done.stderr == "phalanx: waiting for the ssh servers of two.svc\n"
    assert [line.split("-p 2222 ")[1] for line in (tmp_path / "log").read_text().splitlines()] == [
        "one.svc two.svc",
        "two.svc",
    ]


def test_a_launcher_does_not_wait_for_ever(tmp_path: Path) -> None:
    pretend(tmp_path, "ssh", "exit 0")
    pretend(tmp_path, "ssh-keyscan", "exit 1")
    done = launched(tmp_path, "echo", "never", hosts="one.svc slots=1\n", patience="0")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == "phalanx: after 0 s ssh does not reach one.svc\n"


def test_an_image_without_mpirun_or_ssh_is_reported(tmp_path: Path) -> None:
    for name in ("id", "uname", "date"):
        pretend(tmp_path, name, "echo 1000")
    script = main(specs(MPI)["Launcher"])["args"][2].replace("$$(", "$(")
    arguments = ["/bin/sh", "-c", script, "launch", "1", "2222", "/phalanx/ssh", "/dev/null", "mpirun"]

    def said() -> tuple[int, str]:
        done = subprocess.run(arguments, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert said() == (78, "phalanx: mpirun starts the ranks, and this image has none: use one with Open MPI\n")
    pretend(tmp_path, "mpirun", "exit 0")
    code, words = said()
    assert (code, "use one with openssh-client" in words) == (78, True)
    pretend(tmp_path, "ssh", "exit 0")
    assert said() == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="root's keys are meant")
def test_root_has_a_key_that_no_one_else_can_read(tmp_path: Path) -> None:
    """ssh takes no other of its own; the volume, with a group that may read it, has one that it would not take."""
    pretend(tmp_path, "ssh", "exit 0")
    assert launched(tmp_path, "true", hosts="").returncode == 0
    key = tmp_path / "own" / "id_rsa"
    assert (key.read_text(), key.stat().st_mode & 0o077) == ("the key\n", 0)
    assert f"-o IdentityFile={mpi_jobs.OWN_KEY} -o IdentityFile=/phalanx/ssh/id_rsa" in mpi_jobs.SSH


def test_all_objects_of_mpi_are_restricted() -> None:
    for made in (MPI, planned("horovod"), planned("tensorflow", backend="mpi", replicas={"default_worker": SMALL})):
        assert faults_of(backend.objects(made, ClusterTarget())) == []
    assert operated(job(MPI)) == MPIJOB
