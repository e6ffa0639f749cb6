"""The agent as one file, also for Pythons that are older than ours."""

from __future__ import annotations

import base64
import importlib.util
import io
import marshal
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

import pytest

from phalanx.backends.agent_zip import agent_file, carried, client_file
from tests.agent.running import Agents


@cache
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


def test_this_python_need_not_compile_it_and_tracebacks_name_its_files(tmp_path: Path) -> None:
    for made in (agent_file(tmp_path), client_file(tmp_path)):
        with zipfile.ZipFile(made) as archive:
            sources = [name for name in archive.namelist() if name.endswith(".py")]
            assert len(archive.namelist()) == 2 * len(sources)
            for name in sources:
                compiled = archive.read(f"{name}c")
                assert compiled[:8] == importlib.util.MAGIC_NUMBER + b"\1\0\0\0"  # its source is not looked at
                assert compiled[8:16] == importlib.util.source_hash(archive.read(name))
                code = marshal.loads(compiled[16:])
                assert code == compile(archive.read(name), name, "exec", dont_inherit=True)
                assert set(files_of(code)) == {name}


def files_of(code: CodeType) -> Iterator[str]:
    """Which it names in tracebacks, itself and all that is inside of it."""
    yield code.co_filename
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from files_of(one)


def test_what_other_objects_carry_is_small_and_always_the_same(tmp_path: Path) -> None:
    made = carried()
    assert max(len(base64.b64encode(data)) for data in made) < 240 << 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: 2e9)
        carried.cache_clear()
        assert carried() == made
    names = [set(zipfile.ZipFile(io.BytesIO(data)).namelist()) for data in made]
    assert {"__main__.py", "phalanx/agent/pod_entry.py", "phalanx/frames.py", "phalanx/uploads.py"} < names[0]
    assert {"phalanx/tracking/__init__.py", "phalanx/spool.py", "phalanx/uploads.py"} < names[1]
    assert all(name.endswith(".py") for name in names[0] | names[1])


@pytest.mark.parametrize("python", interpreters())
def test_the_client_that_is_carried_can_be_imported(tmp_path: Path, python: str) -> None:
    (tmp_path / "tracking.zip").write_bytes(carried()[1])
    command = [python, "-S", "-c", "import phalanx.tracking.folder_upload, polyaxon_client; print('imported')"]
    paths = [str(tmp_path / "tracking.zip"), str(tmp_path / "tracking.zip" / "phalanx" / "tracking" / "polyaxon")]
    answer = subprocess.run(
        command, env={"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (answer.stdout, answer.stderr) == ("imported\n", "")
