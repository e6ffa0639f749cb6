"""Commands beside a replica: they get what its process has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.agent.interactive.entry import NotEnterable, entry_of, variables_of
from phalanx.agent.processes import read_stat
from tests.agent.running import Agents, wait_for


def entered(agents: Agents, name: str, *argv: str) -> subprocess.CompletedProcess[str]:
    files = [str(agents.folder / "plan.json"), str(agents.folder / "facts.json")]
    return subprocess.run(
        [sys.executable, "-m", "phalanx.agent", *files, "--enter", name, *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_command_gets_the_variables_and_the_folder_of_the_replica_and_its_exit_code_is_passed_on(
    tmp_path: Path,
) -> None:
    agents = Agents(tmp_path, "cd /; sleep 60", environment={"env_vars": [["WITH_SPACES", "x y=z"]]})
    agents.start(FROM_THE_SHELL="s3cret-of-the-shell")
    try:
        wait_for(lambda: is_enterable(agents))
        done = entered(agents, "master-0", "sh", "-c", 'echo "$WITH_SPACES|$FROM_THE_SHELL|$PHALANX_RANK|$PWD"; exit 7')
        assert (done.returncode, done.stdout) == (7, f"x y=z|s3cret-of-the-shell|0|{tmp_path}\n")
        assert entered(agents, "master-0", "no-such-command").returncode == 127
        assert "cannot enter worker-9: it has not started yet" in entered(agents, "worker-9", "ls").stderr
        written = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert written
        assert not any(b"s3cret-of-the-shell" in path.read_bytes() for path in written), "only the process has it"
    finally:
        os.kill(agents.pid(), signal.SIGTERM)
        agents.end()


def is_enterable(agents: Agents) -> bool:
    try:
        return bool(variables_of(str(agents.attempt())))
    except NotEnterable:
        return False


def test_a_held_replica_is_entered_after_its_end(tmp_path: Path) -> None:
    agents = Agents(tmp_path, "echo failing; exit 3", environment={"env_vars": [["MINE", "kept"]]}, hold_s=60.0)
    agents.start()
    assert (agents.end()["cause"], agents.end()["code"]) == ("error", 3)
    wait_for(lambda: is_enterable(agents))
    assert entered(agents, "master-0", "sh", "-c", 'echo "$MINE $PWD"').stdout == f"kept {tmp_path}\n"
    os.kill(agents.pid(), signal.SIGTERM)
    wait_for(lambda: read_stat(agents.pid()) is None)
    assert agents.log() == b"failing\n"
    assert agents.end()["code"] == 3, "the end of the hold changes nothing"


@pytest.mark.parametrize("command", ["true", "sleep 60"])
def test_a_replica_that_finishes_or_is_stopped_is_not_held(tmp_path: Path, command: str) -> None:
    agents = Agents(tmp_path, command, hold_s=60.0)
    agents.start()
    if command != "true":
        wait_for(lambda: is_enterable(agents))
        os.kill(agents.pid(), signal.SIGTERM)
    agents.end()
    wait_for(lambda: read_stat(agents.pid()) is None)


def test_all_replicas_of_a_failed_gang_are_held(tmp_path: Path) -> None:
    """Also those that were ended because of the one that failed."""
    command = "[ $RANK = 1 ] && exit 4; sleep 60"
    agents = Agents(tmp_path, command, environment={"replicas": {"n_workers": 1}}, hold_s=60.0)
    agents.start()
    assert agents.end("worker-0")["code"] == 4
    os.kill(agents.pid("master-0"), signal.SIGTERM)  # as the scheduler does
    assert agents.end("master-0")["cause"] == "stopped"
    for name, rank in (("master-0", "0"), ("worker-0", "1")):
        wait_for(lambda: bool(entered(agents, name, "true").returncode == 0))  # noqa: B023 - called at once
        assert entered(agents, name, "sh", "-c", "echo $RANK").stdout == f"{rank}\n"
    for name in agents.names:
        os.kill(agents.pid(name), signal.SIGTERM)
        wait_for(lambda: read_stat(agents.pid(name)) is None)  # noqa: B023


def test_a_replica_that_does_not_run_is_not_entered(tmp_path: Path) -> None:
    with pytest.raises(NotEnterable, match="not started yet"):
        variables_of(str(tmp_path))
    (tmp_path / "agent.json").write_text('{"pid": 1, "started": 1, "boot": "another machine"}')
    with pytest.raises(NotEnterable, match="does not run on this machine"):
        variables_of(str(tmp_path))
    with pytest.raises(NotEnterable, match="not started yet"):
        entry_of({"folders": {}}, "master-0")
