from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phalanx.agent.supervisor import WATCHED, Task, _signal_tree, last_lines, start_command
from phalanx.spool import read
from tests.agent.running import Agents, wait_for
from tests.kubernetes.sandboxes import Memory


def test_a_command_that_succeeds_is_finished(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "echo hello; echo sorry >&2").start()
    end = agents.end()
    assert (end["cause"], end["code"], end["signal"]) == ("finished", 0, None)
    assert agents.log() == b"hello\nsorry\n"
    assert end["last_lines"] == ["hello", "sorry"]
    assert end["ended_at"] >= end["started_at"]
    assert end["peak"]["memory_mib"] > 0


def test_a_command_that_fails_says_with_which_code(tmp_path: Path) -> None:
    end = Agents(tmp_path, "echo reason; exit 3").start().end()
    assert (end["cause"], end["code"], end["message"]) == ("error", 3, "exit code 3")
    assert end["last_lines"] == ["reason"]


def test_a_signal_is_reported_by_its_name(tmp_path: Path) -> None:
    end = Agents(tmp_path, "kill -SEGV $$").start().end()
    assert (end["cause"], end["code"], end["signal"]) == ("error", None, 11)
    assert "SIGSEGV" in end["message"]


def test_a_program_that_is_not_there_is_an_error_with_its_reason(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "true")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["replicas"][0]["argv"] = ["/no/such/program"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    end = agents.start().end()
    assert end["code"] == 127
    assert "cannot start /no/such/program" in end["last_lines"][0]


def test_a_working_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    end = Agents(tmp_path, "true", working=gone).start().end()
    assert (end["cause"], end["code"]) == ("error", 127)
    assert end["last_lines"] == [f"phalanx: cannot enter the working folder {gone}: No such file or directory"]


def test_where_there_is_no_bash_its_ancestor_runs_the_command(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    agents = Agents(tmp_path, 'echo "shell: $0"; exit 4').start(PATH=str(tmp_path / "bin"))
    assert agents.end()["code"] == 4
    assert agents.log() == b"shell: sh\n"


def test_every_replica_gets_its_own_environment(tmp_path: Path) -> None:
    agents = Agents(
        tmp_path,
        "echo $RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $PHALANX_ATTEMPT $PHALANX_REPLICA",
        environment={"replicas": {"n_workers": 2}},
    ).start()
    for rank, name in enumerate(("master-0", "worker-0", "worker-1")):
        assert agents.end(name)["cause"] == "finished"
        assert agents.log(name).decode() == f"{rank} 3 127.0.0.1:21000 1 {name}\n"


def test_a_default_variable_never_overrides_the_machine(tmp_path: Path) -> None:
    asked = {"resources": {"cpu": {"requests": 3}}}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    default = Agents(tmp_path / "a", "echo $OMP_NUM_THREADS", environment=asked).start()
    given = Agents(tmp_path / "b", "echo $OMP_NUM_THREADS", environment=asked).start(OMP_NUM_THREADS="7")
    default.end()
    given.end()
    assert (default.log(), given.log()) == (b"3\n", b"7\n")


def test_gpus_are_handed_over_by_their_names(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "echo $CUDA_VISIBLE_DEVICES", gpus={"master-0": ["2", "5"]}).start()
    agents.end()
    assert agents.log() == b"2,5\n"


def test_term_is_passed_on_and_the_command_may_end_well(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done").start()
    wait_for(lambda: agents.attempt().joinpath("log").exists() and agents.log() == b"up\n")
    os.kill(agents.pid(), signal.SIGTERM)
    end = agents.end()
    assert (end["cause"], end["code"]) == ("stopped", 0)
    assert end["last_lines"][-1] == "saved"


def test_who_ignores_term_is_killed_after_its_grace(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "trap '' TERM; echo up; sleep 100; sleep 100", grace_s=0.5).start()
    wait_for(lambda: agents.attempt().joinpath("log").exists() and agents.log() == b"up\n")
    os.kill(agents.pid(), signal.SIGTERM)
    asked = time.monotonic()
    end = agents.end()
    assert (end["cause"], end["signal"]) == ("stopped", signal.SIGKILL)
    assert time.monotonic() - asked < 60


def test_a_command_that_is_stopped_before_it_has_its_session_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, has_been_signalled = os.setsid, tmp_path / "signalled"

    def begin_late() -> None:
        wait_for(has_been_signalled.exists)
        begin()

    monkeypatch.setattr(os, "setsid", begin_late)
    task = Task("master-0", 1, str(tmp_path), str(tmp_path), ["sleep", "300"], dict(os.environ))
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        child = start_command(task, str(tmp_path / "log"))
        _signal_tree(child, signal.SIGTERM)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
    has_been_signalled.touch()
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_the_time_limit_ends_it(tmp_path: Path) -> None:
    end = Agents(tmp_path, "sleep 100", environment={"timeout": 1}).start().end()
    assert end["cause"] == "timeout"
    assert "1 s" in end["message"]


def test_the_memory_limit_ends_it(tmp_path: Path) -> None:
    hungry = "python3 -c 'x = bytearray(300 << 20); import time; time.sleep(60)'"
    end = Agents(tmp_path, hungry, environment={"resources": {"memory": {"limits": 100}}}).start().end()
    assert end["cause"] == "memory"
    assert "of 100 MiB" in end["message"]


HUNGRY = 'python3 -c "x = [bytearray(20_000_000) for _ in range(60)]"'


@pytest.mark.parametrize(
    ("command", "cause", "words"),
    [
        (f"exec {HUNGRY}", "memory", "the kernel killed it for memory"),
        (f"{HUNGRY}; exit $?", "memory", "the kernel killed it for memory"),
        (f"{HUNGRY} || exit 3", "error", "exit code 3; the kernel killed a process beside it for memory"),
        ("exit 137", "error", "exit code 137"),
    ],
)
def test_the_kernel_s_word_about_memory_counts_also_behind_a_shell(
    tmp_path: Path, command: str, cause: str, words: str
) -> None:
    limit = Memory(f"phalanx-test-{os.getpid()}", 300 << 20)
    if limit.path is None:
        pytest.skip("no control group can be made here")
    try:
        end = Agents(tmp_path, command).start(within=limit.path).end()
        assert (end["cause"], end["message"]) == (cause, words)
        procs = limit.path / "cgroup.procs"
        wait_for(lambda: not procs.read_text())
    finally:
        limit.remove()


def test_memory_within_the_limit_is_left_alone(tmp_path: Path) -> None:
    modest = "python3 -c 'x = bytearray(50 << 20); import time; time.sleep(1.2)'"
    end = Agents(tmp_path, modest, environment={"resources": {"memory": {"limits": 400}}}).start().end()
    assert end["cause"] == "finished"
    assert 50 < end["peak"]["memory_mib"] < 400


def test_daemons_do_not_outlive_the_command(tmp_path: Path) -> None:
    mark = "4242.25"
    command = f"setsid sleep {mark} & (setsid setsid sleep {mark} &); sleep 0.2; echo done"
    agents = Agents(tmp_path, command).start()
    assert agents.end()["cause"] == "finished"
    found = subprocess.run(["pgrep", "-f", f"sleep {mark}"], stdout=subprocess.PIPE, check=False).stdout
    assert found == b""


def test_the_command_dies_with_its_agent(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "echo $$; exec sleep 100").start()
    wait_for(lambda: agents.attempt().joinpath("log").exists() and agents.log().endswith(b"\n"))
    child = int(agents.log())
    os.kill(agents.pid(), signal.SIGKILL)
    wait_for(lambda: not _alive(child), 5)
    assert not (agents.attempt() / "end.json").exists()


def test_the_log_grows_in_the_spool_with_its_times(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "echo one; sleep 0.7; echo two").start()
    agents.end()
    sizes = [(row["at"], row["log"]) for record in read(agents.attempt() / "spool") if "log" in (row := record.data())]
    assert [size for _, size in sizes][-2:] == [4, 8]
    assert sizes[-1][0] - sizes[-2][0] > 0.4


def test_use_is_written_to_the_spool(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "python3 -c 'x = bytearray(30 << 20); import time; time.sleep(0.6)'").start()
    agents.end()
    used = [row["use"] for record in read(agents.attempt() / "spool") if "use" in (row := record.data())]
    assert used
    assert used[0]["processes"] >= 1
    assert max(row["memory_mib"] for row in used) > 1  # the first sample may precede the program


@pytest.mark.parametrize("size", [5_000_000])
def test_binary_junk_and_endless_lines_survive(tmp_path: Path, size: int) -> None:
    agents = Agents(tmp_path, f"head -c {size} /dev/urandom; head -c {size} /dev/zero").start()
    end = agents.end()
    assert end["cause"] == "finished"
    assert len(agents.log()) == 2 * size
    assert all(len(line) <= 400 for line in end["last_lines"])


def test_what_is_written_is_private(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "echo x").start()
    agents.end()
    modes = {path.name: path.stat().st_mode & 0o777 for path in agents.attempt().iterdir()}
    assert modes.pop("agent.log") == 0o600
    assert set(modes.values()) == {0o600}
    assert set(modes) == {"agent.json", "end.json", "log", "spool"}


def test_last_lines_of_anything(tmp_path: Path) -> None:
    assert last_lines(str(tmp_path / "nothing")) == []
    (tmp_path / "log").write_bytes(b"\xff\xfe\n\n  \n" + b"y" * 100_000 + b"\nlast")
    lines = last_lines(str(tmp_path / "log"))
    assert lines[-1] == "last"
    assert lines[-2] == "y" * 400


def test_a_full_disk_costs_records_but_not_the_end(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        agents = Agents(disk, "head -c 3000000 /dev/zero || echo full; exit 5").start()
        end = agents.end()
        assert (end["cause"], end["code"]) == ("error", 5)
    finally:
        wait_for(lambda: subprocess.run(["umount", str(disk)], check=False, stderr=subprocess.DEVNULL).returncode == 0)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_launcher_starts_agents_that_know_their_rank(tmp_path: Path) -> None:
    """As mpirun does: the same line for all, and a variable that says which rank each is."""
    run = Agents(
        tmp_path,
        'echo "$PHALANX_REPLICA of $PHALANX_WORLD_SIZE"; exit $PHALANX_RANK',
        framework="mpi",
        environment={"replicas": {"n_workers": 2}},
        client=["/some/client"],
    )
    assert run.names == ["worker-0", "worker-1", "launcher-0"]
    arguments = [str(tmp_path / "plan.json"), str(tmp_path / "facts.json"), "--as-rank"]
    for rank in (0, 1):
        done = subprocess.run(
            [sys.executable, "-m", "phalanx.agent", *arguments],
            env={**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "PHALANX_REPLICA": "launcher-0"},
            check=False,
        )
        assert done.returncode == rank
        assert run.log(f"worker-{rank}") == f"worker-{rank} of 2\n".encode()
        assert run.end(f"worker-{rank}")["code"] == rank
    nobody = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    command = [sys.executable, "-m", "phalanx.agent", *arguments]
    lost = subprocess.run(command, env=nobody, capture_output=True, check=False)
    assert b"the launcher did not set the rank of this process" in lost.stderr
