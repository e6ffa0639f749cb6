"""The agent as one file, also for Pythons that are older than ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.backends.agent_zip import agent_file
from tests.agent.running import Agents


def interpreters() -> list[str]:
    """This Python, and the oldest one that the agent must run on, where there is one."""
    named = [shutil.which("python3.8"), *map(str, Path.home().glob(".pyenv/versions/3.8*/bin/python3.8"))]
    return [sys.executable, *[python for python in named if python and _works(python)][:1]]


def _works(python: str) -> bool:
    """A name on the PATH may be a mere signpost."""
    return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("python", interpreters())
def test_the_agent_runs_from_one_file_with_nothing_else_installed(tmp_path: Path, python: str) -> None:
    agents = Agents(tmp_path, "echo $RANK of $WORLD_SIZE", environment={"replicas": {"n_workers": 1}})
    agent = agent_file(tmp_path / "agents")
    subprocess.run(
        [python, "-I", "-S", str(agent), str(tmp_path / "plan.json"), str(tmp_path / "facts.json")],
        check=True,
        env=dict(os.environ),
    )
    assert [agents.end(name)["cause"] for name in agents.names] == ["finished", "finished"]
    assert agents.log("worker-0") == b"1 of 2\n"


def test_it_is_made_once_and_is_private(tmp_path: Path) -> None:
    first = agent_file(tmp_path)
    made = first.stat().st_mtime_ns
    assert agent_file(tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert first.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [first]
