"""The agent as the first process of a pod."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx import spool
from phalanx.agent import init_container, preflight, processes
from phalanx.agent.preflight import Address, PreflightPlan
from phalanx.agent.virtualenv import VirtualenvError, unpack_code
from tests.agent.pods import Pod, Said
from tests.agent.running import wait_for
from tests.agent.test_zip import interpreters
from tests.ports import free_port

TRACKING = """
import phalanx.tracking as tracking
tracking.log(loss=0.5, step=1)
print("::phalanx not a frame")
print("last", end="")
"""


@pytest.mark.parametrize("python", interpreters())
def test_a_pod_runs_its_replica_and_all_of_it_comes_home_through_its_output(tmp_path: Path, python: str) -> None:
    pod = Pod(tmp_path, f"{sys.executable} train.py")
    (tmp_path / "code" / "train.py").write_text(TRACKING)
    said = pod.run(python=python)
    assert (said.code, said.err) == (0, "")
    files = said.files()
    names = {file for _, file in files}
    assert {"log", "spool", "agent.json", "end.json"} < names
    assert all(data == (pod.attempt() / file).read_bytes() for (_, file), data in files.items())
    assert files["master-0", "log"] == b"::phalanx not a frame\nlast"
    (points,) = (data for (_, file), data in files.items() if file.endswith(".points"))
    assert [record.kind for record in spool.split(points)[0]] == [spool.NAMES, spool.POINTS]
    assert json.loads(files["master-0", "end.json"])["cause"] == "finished"


@pytest.mark.parametrize("python", interpreters())
def test_results_in_the_folder_of_a_pod_come_home_as_outputs(tmp_path: Path, python: str) -> None:
    pod = Pod(tmp_path, "mkdir runs; echo 1 > runs/events.out.tfevents.1.h; echo weights > model.pt; echo 1 > a.csv")
    said = pod.run(python=python)
    assert (said.code, said.err) == (0, "")
    files = {file: data for (_, file), data in said.files().items()}
    assert files["outputs/model.pt"] == b"weights\n"
    assert files["outputs/runs/events.out.tfevents.1.h"] == b"1\n"
    states = {path: state for path, *_, state in json.loads(files["working-files.json"])["files"]}
    assert states["a.csv"] == "left"
    assert states["model.pt"] == "collected"


@pytest.mark.parametrize(
    ("command", "code", "cause"),
    [("exit 3", 3, "error"), ("kill -9 $$", 137, "error"), ("no-such-program-anywhere", 127, "error")],
)
def test_its_exit_code_is_the_commands(tmp_path: Path, command: str, code: int, cause: str) -> None:
    pod = Pod(tmp_path, command)
    said = pod.run()
    assert (said.code, pod.end()["cause"]) == (code, cause)
    message = json.loads((tmp_path / "termination-log").read_text())
    assert message["ends"]["master-0"]["cause"] == cause


def test_asked_to_end_it_signals_the_command_once_and_says_so(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "trap 'echo told' TERM; echo ready; sleep 60 & wait $!; wait $!; echo over", grace_s=5)
    process = pod.start()
    wait_for(lambda: (pod.attempt() / "log").exists() and b"ready" in pod.log())
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 143
    assert Said(143, out).files()["master-0", "log"].count(b"told") == 1
    assert json.loads(Said(143, out).files()["master-0", "end.json"])["cause"] == "stopped"


def test_a_command_that_ignores_term_is_killed_after_its_grace(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    process = pod.start()
    wait_for(lambda: (pod.attempt() / "log").exists() and b"ready" in pod.log())
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert process.returncode == 143
    assert 0.9 < time.monotonic() - began < 60
    assert pod.end()["cause"] == "stopped"


def test_an_agent_that_is_killed_is_informed_of_by_the_first_process(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "echo ready; sleep 60")
    process = pod.start()
    wait_for(lambda: (pod.attempt() / "log").exists() and b"ready" in pod.log())
    os.kill(json.loads((pod.attempt() / "agent.json").read_text())["pid"], signal.SIGKILL)
    out, _ = process.communicate(timeout=90)
    assert process.returncode == 1
    assert json.loads(Said(1, out).files()["master-0", "end.json"])["cause"] == "lost"


def test_a_replica_that_another_pod_has_is_not_run_twice(tmp_path: Path) -> None:
    """On a volume that all share, a second pod of the same attempt finds the first."""
    pod = Pod(tmp_path, "echo ran", courier="volume")
    pod.attempt().mkdir(parents=True)
    (pod.attempt() / "agent.json").write_text("{}")
    said = pod.run()
    assert said.code == 1
    assert "another pod already runs master-0" in said.err
    assert not (pod.attempt() / "end.json").exists()


@pytest.mark.slow
def test_a_container_that_its_kubelet_starts_again_goes_on(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "echo again >> times; exit $((2 - $(wc -l < times)))")
    assert pod.run(PHALANX_POD="job-worker-0").code == 1
    said = pod.run(PHALANX_POD="job-worker-0")
    assert (said.code, pod.end()["cause"], said.err) == (0, "finished", "")
    said = pod.run(PHALANX_POD="another")
    assert said.code == 0, "as it ended before"
    assert "another pod already runs master-0" not in said.err, "it has an end"
    assert (tmp_path / "code" / "times").read_text() == "again\nagain\n"


def test_the_token_is_for_no_one_but_the_agent(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "env")
    said = pod.run(PHALANX_RUN_TOKEN="phr_secret", MY_API_KEY="from-the-secret")
    assert b"MY_API_KEY=from-the-secret" in pod.log()
    assert b"phr_secret" not in said.out + pod.log() + said.err.encode()


def test_the_secrets_of_one_replica_are_not_for_the_others(tmp_path: Path) -> None:
    secrets = {"worker-1.API_KEY": "another's", "my.own-variable": "kept"}
    pod = Pod(
        tmp_path, "env", environment={"replicas": {"n_workers": 2}}, members=["worker-0"], steps=["env > steps"],
        code={"kind": "none", "path": None, "working": str(tmp_path)},
    )  # fmt: skip
    pod.plan["meets"] = []
    pod.write()
    assert (pod.run("--prepare", **secrets).code, pod.run(**secrets).code) == (0, 0)
    for seen in (pod.log("worker-0"), (tmp_path / "steps").read_bytes()):
        assert b"my.own-variable=kept" in seen
        assert b"another's" not in seen


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else")
def test_the_agents_variables_cannot_be_read_by_what_it_runs() -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that another user may use")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are for one user alone
        pod = Pod(Path(folder) / "pod", "env; cat /proc/$PPID/environ")
        subprocess.run(["chown", "-R", "12345:12345", folder], check=True)
        command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", python, "-I", "-S"]
        answer = subprocess.run(
            [*command, str(pod.root / "agent" / "agent.pyz"), "--pod"],
            env=pod.variables(PHALANX_RUN_TOKEN="phr_secret"), capture_output=True, cwd="/", timeout=30, check=False,
        )  # fmt: skip
        assert b"phr_secret" not in answer.stdout + answer.stderr + pod.log()
        assert b"Permission denied" in pod.log()
        assert pod.end()["cause"] == "error"


def test_variables_of_the_plan_win_unless_they_yield(tmp_path: Path) -> None:
    yields = ["PHALANX_RANK", "TF_CONFIG"]
    pod = Pod(tmp_path, 'echo "$PHALANX_RANK $PHALANX_WORLD_SIZE $HELD ${TF_CONFIG:-none}"', yields=yields)
    said = pod.run(PHALANX_RANK="7", PHALANX_WORLD_SIZE="9", HELD="kept")
    assert said.code == 0
    assert pod.log() == b"7 1 kept none\n"


@pytest.mark.parametrize("name", ["PHALANX_POD_INDEX", "JOB_COMPLETION_INDEX"])
def test_which_replica_it_is_its_index_says(tmp_path: Path, name: str) -> None:
    members = ["master-0", "worker-0", "worker-1"]
    pod = Pod(tmp_path, "echo $PHALANX_REPLICA", environment={"replicas": {"n_workers": 2}}, members=members[1:])
    pod.plan["meets"] = []
    pod.write()
    assert pod.run(**{name: "1"}).code == 0
    assert pod.log("worker-1") == b"worker-1\n"


def test_all_processes_of_a_replica_run_in_its_pod(tmp_path: Path) -> None:
    pod = Pod(
        tmp_path, 'echo "$RANK of $WORLD_SIZE"; [ $RANK -eq 0 ] || exit 4', environment={"replicas": {"processes": 2}}
    )
    said = pod.run()
    assert said.code == 4
    files = said.files()
    assert files["master-0", "log"] == b"0 of 2\n"
    assert files["master-0.1", "log"] == b"1 of 2\n"
    assert json.loads(files["master-0.1", "end.json"])["code"] == 4


MEETING = """
import os, socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    connection, _ = socket.create_server((os.environ["MASTER_ADDR"], port)).accept()
    connection.sendall(b"met")
else:
    until = time.monotonic() + 20
    while True:
        try:
            connection = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)
    print(connection.recv(9).decode())
"""


@pytest.mark.slow
def test_two_pods_meet_before_either_starts(tmp_path: Path) -> None:
    port = free_port()
    table: dict[str, Any] = {
        "host": {"master-0": "127.0.0.2", "worker-0": "127.0.0.3"},
        "port": {"master-0": port, "worker-0": port},
    }
    pods = [
        Pod(
            tmp_path / name, f"{sys.executable} meet.py",
            environment={"replicas": {"n_workers": 1}}, members=[name], **table,
        )
        for name in table["host"]
    ]  # fmt: skip
    for pod in pods:
        (pod.root / "code" / "meet.py").write_text(MEETING)
    first = pods[0].start()
    time.sleep(0.5)
    assert not (pods[0].attempt() / "log").exists()  # it waits
    assert pods[1].run().code == 0
    first.communicate(timeout=90)
    assert first.returncode == 0
    assert pods[1].log("worker-0") == b"met\n"


def test_peers_that_never_come_are_an_end_that_names_them(tmp_path: Path) -> None:
    pod = Pod(
        tmp_path, "echo ran", environment={"replicas": {"n_workers": 1}}, members=["worker-0"],
        host={"master-0": "run-1-master-0.invalid", "worker-0": "127.0.0.3"}, peers_s=0.5,
    )  # fmt: skip
    said = pod.run()
    assert said.code == 1
    end = pod.end("worker-0")
    assert end["cause"] == "meeting"
    assert "worker-0 cannot reach master-0 at run-1-master-0.invalid" in end["message"]
    assert b"ran" not in pod.log("worker-0").split()


def test_a_name_that_no_one_knows_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of pods are there a moment after the pods are."""
    port = free_port()
    known, asked = threading.Event(), []
    dial = socket.create_connection

    def resolving(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append(time.monotonic())
        if not known.is_set():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return dial(("127.0.0.1", address[1]), timeout=timeout)

    monkeypatch.setattr(socket, "create_connection", resolving)
    monkeypatch.setattr(preflight, "UNKNOWN_S", 0.2)
    home = Address("master-0", "127.0.0.1", port)
    name = Address("master-0", "run-master-0.run", port)
    host = PreflightPlan("master-0", "key", home, frozenset({"worker-0"}), (), 10.0)
    guest = PreflightPlan("worker-0", "key", None, frozenset(), (name,), 10.0)
    threads = [
        threading.Thread(target=preflight.run_preflight, args=(each, lambda _: None, lambda: False))
        for each in (host, guest)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    assert 2 <= len(asked) <= 5  # it does not ask without a pause
    assert all(thread.is_alive() for thread in threads)
    known.set()
    for thread in threads:
        thread.join(5.0)
    assert not any(thread.is_alive() for thread in threads)


def test_at_a_name_it_listens_for_addresses_of_either_kind() -> None:
    port = free_port()
    with preflight.listen(Address("master-0", "run-master-0.run", port)):
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
        if socket.has_dualstack_ipv6() and Path("/proc/net/if_inet6").read_text().strip():
            socket.create_connection(("::1", port), timeout=2.0).close()


@pytest.mark.slow
def test_horovod_gets_the_interface_of_the_pod(tmp_path: Path) -> None:
    pod = Pod(
        tmp_path, "echo $HOROVOD_GLOO_IFACE,$HOROVOD_GLOO_RENDEZVOUS_ADDR,$HOROVOD_GLOO_RENDEZVOUS_PORT",
        framework="horovod", environment={"replicas": {"processes": 2}}, port={"master-0": 0},
    )  # fmt: skip
    pod.place["port"] = {"master-0": free_port()}
    pod.write()
    assert pod.run().code == 0
    interface, host, port = pod.log().decode().strip().split(",")
    assert interface in {name for _, name in socket.if_nameindex()}
    assert (host, int(port)) == ("127.0.0.1", pod.place["port"]["master-0"])


@pytest.mark.slow
def test_what_cannot_run_says_why(tmp_path: Path) -> None:
    pod = Pod(tmp_path / "a", "true", code={"kind": "none", "working": "/no/such/folder"})
    assert pod.run().code == 78
    assert (pod.end()["cause"], pod.end()["message"]) == (
        "setup",
        "the working folder /no/such/folder does not exist in this pod",
    )
    said = Pod(tmp_path / "b", "true", members=["worker-7"]).run()
    assert (said.code, said.err) == (78, "phalanx: the plan has no replica 'worker-7'\n")
    said = Pod(tmp_path / "c", "true").run(PHALANX_POD_INDEX="3")
    assert said.code == 78
    assert "this is pod '3' of 1" in said.err
    lost = Pod(tmp_path / "d", "true")
    (lost.root / "job" / "plan.json.gz").unlink()
    said = lost.run()
    assert said.code == 78
    assert "cannot read the run's plan" in said.err


@pytest.mark.slow
def test_a_run_folder_of_another_user_is_reported_where_possible(tmp_path: Path) -> None:
    for mode, steps in (("--pod", []), ("--prepare", ["true"])):
        pod = Pod(tmp_path / mode, "true", steps=steps, code={"kind": "none", "working": str(tmp_path)})
        (pod.root / "run").rmdir()
        (pod.root / "run").write_text("a file")
        said = pod.run(mode)
        assert (said.code, said.err) == (78, "")
        assert b"cannot be created: Not a directory" in said.out
        word = json.loads((pod.root / "termination-log").read_bytes())["ends"]["master-0"]
        assert word["cause"] == "setup"
        assert "cannot be created: Not a directory" in word["message"]


def test_outputs_that_no_one_could_write_are_reported_before_the_training(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_text("a file")
    pod = Pod(tmp_path / "pod", "echo started", outputs=str(store / "run-1"))
    said = pod.run()
    assert (said.code, pod.end()["cause"]) == (78, "setup")
    assert "cannot be created: Not a directory" in pod.end()["message"]
    assert b"started" not in said.out
    assert said.files()["master-0", "log"] == pod.log(), "nothing of ours comes between the lines"


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else")
def test_a_store_of_another_user_says_who_we_are() -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that another user may use")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are for one user alone
        store = Path(folder) / "store"
        pod = Pod(Path(folder) / "pod", "true", outputs=str(store))
        subprocess.run(["chown", "-R", "12345:12345", folder], check=True)
        store.mkdir(mode=0o755)
        command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", python, "-I", "-S"]
        subprocess.run(
            [*command, str(pod.root / "agent" / "agent.pyz"), "--pod"],
            env=pod.variables(), capture_output=True, cwd="/", timeout=30, check=False,
        )  # fmt: skip
        assert pod.end()["message"].startswith(f"cannot write to {store}. This pod runs as user 12345: allow it")


def test_the_image_says_where_to_run_when_the_code_is_in_it(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "pwd", code={"kind": "none", "path": None, "working": None})
    assert pod.run().code == 0
    assert pod.log().decode().strip() == str(tmp_path)


@pytest.mark.slow
def test_small_outputs_come_home_and_of_others_is_reported(tmp_path: Path) -> None:
    command = (
        "mkdir $PHALANX_OUTPUTS/deep; echo data > $PHALANX_OUTPUTS/deep/model.bin; echo no > $PHALANX_OUTPUTS/.draft; "
        "head -c 3000000 /dev/urandom > $PHALANX_OUTPUTS/half; head -c 3000000 /dev/zero > $PHALANX_OUTPUTS/other"
    )
    pod = Pod(tmp_path, command)
    found = pod.run().files()
    assert found["master-0", "outputs/deep/model.bin"] == b"data\n"
    assert found["master-0", "outputs/half"] == (tmp_path / "run" / "outputs" / "half").read_bytes()
    assert ("master-0", "outputs/other") not in found
    assert ("master-0", "outputs/.draft") not in found
    assert b"1 files (2.9 MiB) of outputs are lost with this pod" in found["master-0", "log"]
    elsewhere = Pod(tmp_path / "b", "echo data > $PHALANX_OUTPUTS/model.bin", outputs=str(tmp_path / "store"))
    said = elsewhere.run()
    assert said.code == 0
    assert elsewhere.log() == b""
    assert ("master-0", "outputs/model.bin") not in said.files()
    assert (tmp_path / "store" / "model.bin").exists()


@pytest.mark.slow
def test_an_output_that_no_one_reads_does_not_hold_up_the_end(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "head -c 2500000 /dev/zero | tr '\\0' '\\n'; echo done >&2")
    process = pod.start(before="import phalanx.agent.stdout_courier as r; r.STUCK_S = 0.5")
    began = time.monotonic()
    assert process.wait(timeout=90) == 0
    assert time.monotonic() - began < 80
    assert pod.end()["cause"] == "finished"
    process.communicate()


@pytest.mark.slow
def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "seq 200000")
    process = pod.start()
    assert process.stdout is not None
    out = b""
    wait_for((pod.attempt() / "end.json").exists)
    time.sleep(0.5)  # nothing was read so far
    while piece := process.stdout.read(1 << 16):
        out += piece
    process.communicate(timeout=90)
    assert process.returncode == 0
    assert Said(0, out).files()["master-0", "log"] == pod.log()


def test_a_process_without_a_parent_is_ended(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "setsid sleep 987654 & sleep 0.2; echo $!")
    assert pod.run().code == 0
    assert not os.path.exists(f"/proc/{int(pod.log())}")


def test_a_server_that_says_nothing_does_not_keep_a_pod_that_is_asked_to_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pod = Pod(
            tmp_path, "echo ready; sleep 60", courier="server", server=f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        process = pod.start(
            before="import phalanx.agent.pod_entry as p; p.FAREWELL_S = 1.0; p.FALL_BACK_S = 1.0",
            PHALANX_RUN_TOKEN="phr_x",
        )
        wait_for(lambda: (pod.attempt() / "log").exists() and b"ready" in pod.log())
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=90)
    assert time.monotonic() - began < 45
    assert process.returncode == 143
    assert b"not everything reached the server" in err
    assert json.loads(Said(143, out).files()["master-0", "end.json"])["cause"] == "stopped"


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="only root makes a namespace")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_as_the_first_process_of_all_it_hears_and_takes_all_with_it(tmp_path: Path, number: int) -> None:
    pod = Pod(tmp_path, "trap 'echo told; exit 0' TERM; sleep 98765 & echo ready; wait $!", grace_s=5)
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-I", "-S"]
    process = subprocess.Popen(
        [*unshare, str(tmp_path / "agent" / "agent.pyz"), "--pod"],
        env=pod.variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for(lambda: (pod.attempt() / "log").exists() and b"ready" in pod.log())
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        wait_for(lambda: len(list(processes.descendants(int(first)))) > 2)
        below = [stat.pid for stat in processes.descendants(int(first))]
        os.kill(int(first), number)
        out, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below))
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert Said(143, out).files()["master-0", "log"] == b"ready\ntold\n"


# before it -----------------------------------------------------------------------------------------------------------


def bundle(path: Path, **files: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/").replace("_py", ".py"))
            entry.size, entry.mode = len(text), 0o755 if text.startswith("#!") else 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))


@pytest.mark.slow
def test_the_code_is_unpacked_before_the_run(tmp_path: Path) -> None:
    pod = Pod(tmp_path, f"{sys.executable} train.py; ./tool")
    bundle(
        tmp_path / "bundle" / "code.tar.gz",
        train_py="import sub.part",
        sub__part_py="print('code')",
        tool="#!/bin/sh\necho tool",
    )
    assert pod.run("--prepare").code == 0
    assert pod.run("--prepare").code == 0  # a container that is started again
    assert pod.run().code == 0
    assert pod.log() == b"code\ntool\n"


@pytest.mark.parametrize("is_whole", [True, False])
def test_code_in_pieces_is_joined(tmp_path: Path, is_whole: bool) -> None:
    pod, whole = Pod(tmp_path, f"{sys.executable} train.py"), tmp_path / "bundle" / "code.tar.gz"
    bundle(whole, train_py="print('code')")
    data = whole.read_bytes()
    for number, name in enumerate(["code.tar.gz", "code.tar.gz.1", "code.tar.gz.2"]):
        end = 40 * (number + 1) if number < 2 else len(data)
        if is_whole or number < 2:
            (tmp_path / "bundle" / name).write_bytes(data[40 * number : end])
    said = pod.run("--prepare")
    if is_whole:
        assert said.code == 0
        assert pod.run().code == 0
        assert pod.log() == b"code\n"
        assert [path.name for path in (tmp_path / "code").iterdir()] == ["train.py"]
    else:
        assert said.code == 78, "a piece is missing"


def test_code_that_did_not_come_along_is_an_end(tmp_path: Path) -> None:
    said = Pod(tmp_path, "true").run("--prepare")
    assert said.code == 78
    end = json.loads(said.files()["master-0", "end.json"])
    assert (end["cause"], end["code"]) == ("setup", None)
    assert "the run's code is missing" in end["message"]


@pytest.mark.slow
def test_steps_are_run_into_a_python_that_the_run_uses(tmp_path: Path) -> None:
    steps = ["echo VALUE = 42 > $(python -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')/made.py"]
    pod = Pod(
        tmp_path,
        'python -c "import made; print(made.VALUE)"; echo $VIRTUAL_ENV',
        steps=steps,
        code={"kind": "none", "working": str(tmp_path)},
    )
    pod.place["code"]["working"] = str(tmp_path / "code")
    pod.write()
    assert pod.run("--prepare").code == 0
    assert pod.run().code == 0
    value, venv = pod.log().decode().split()
    assert value == "42"
    assert venv.startswith(str(tmp_path / "run"))
    assert "include-system-site-packages = true" in (Path(venv) / "pyvenv.cfg").read_text()


def test_a_step_that_fails_is_named_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod(tmp_path, "true", steps=["true", "echo no such thing; exit 5", "echo never"], code={"kind": "none"})
    said = pod.run("--prepare", PHALANX_RUN_TOKEN="phr_secret")
    assert said.code == 78
    end = json.loads(said.files()["master-0", "end.json"])
    assert end["message"] == "`echo no such thing; exit 5` failed with code 5"
    assert end["last_lines"] == ["no such thing"]
    assert json.loads((tmp_path / "termination-log").read_text())["ends"]["master-0"]["message"] == end["message"]
    assert b"never" not in said.out
    assert b"phr_secret" not in said.out


def test_asked_to_end_it_does_not_finish_its_steps(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "true", steps=["echo $$ > pid; sleep 60"], code={"kind": "none", "working": str(tmp_path)})
    process = pod.start("--prepare")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143
    wait_for(lambda: not os.path.exists(f"/proc/{int((tmp_path / 'pid').read_text())}"))


def test_a_step_that_wants_to_be_root_gets_advice(tmp_path: Path) -> None:
    assert "pods do not run as root" in init_container._advice(
        VirtualenvError("`apt-get install -y git` failed with code 100", [])
    )
    assert init_container._advice(VirtualenvError("`pip install torch` failed with code 1", [])) == ""


def entry(name: str, kind: bytes = tarfile.REGTYPE, goal: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, goal
    return made


@pytest.mark.parametrize(
    "entries",
    [
        [entry("/etc/evil")],
        [entry("../evil")],
        [entry("a/../../evil")],
        [entry("evil", tarfile.LNKTYPE, "/etc/passwd")],
        [entry("evil", tarfile.CHRTYPE)],
        [entry("evil", tarfile.FIFOTYPE)],
        [entry("evil", tarfile.SYMTYPE, "/etc")],
        [entry("evil", tarfile.SYMTYPE, "../outside")],
        [
            entry("d", tarfile.DIRTYPE),
            entry("d/l", tarfile.SYMTYPE, ".."),
            entry("m", tarfile.SYMTYPE, "d/l/../outside"),
        ],
        [entry("evil", tarfile.SYMTYPE, ".."), entry("evil/outside/x")],
        [entry("d", tarfile.SYMTYPE, "e"), entry("e", tarfile.SYMTYPE, "/etc"), entry("d/x")],
    ],
)
def test_an_archive_that_leads_elsewhere_is_refused(tmp_path: Path, entries: list[tarfile.TarInfo]) -> None:
    with tarfile.open(tmp_path / "code.tar.gz", "w:gz") as archive:
        for each in entries:
            archive.addfile(each, io.BytesIO(b""))
    (tmp_path / "outside").mkdir()
    with pytest.raises(VirtualenvError):
        unpack_code(str(tmp_path / "code.tar.gz"), str(tmp_path / "code"))
    assert list((tmp_path / "outside").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"code.tar.gz", "code", "outside"}


def test_links_within_the_code_are_kept(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "code.tar.gz", "w:gz") as archive:
        for each in (
            entry("a", tarfile.SYMTYPE, "sub/b"),
            entry("sub", tarfile.DIRTYPE),
            entry("sub/b"),
            entry("sub/c", tarfile.SYMTYPE, "../a"),
        ):
            archive.addfile(each, io.BytesIO(b""))
    unpack_code(str(tmp_path / "code.tar.gz"), str(tmp_path / "code"))
    assert (tmp_path / "code" / "sub" / "c").resolve() == tmp_path / "code" / "sub" / "b"


def test_what_is_no_archive_is_reported_as_such(tmp_path: Path) -> None:
    for data in (b"no archive", b"\x1f\x8b\x08\x00broken"):
        (tmp_path / "code.tar.gz").write_bytes(data)
        with pytest.raises(VirtualenvError, match="cannot be unpacked"):
            unpack_code(str(tmp_path / "code.tar.gz"), str(tmp_path / "code"))
