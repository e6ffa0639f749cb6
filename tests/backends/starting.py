"""Writing a job and really starting it on this machine."""

from __future__ import annotations

import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from phalanx import plan, spec
from phalanx.backends import find
from phalanx.backends.contract import Job
from phalanx.cli.commands.plan import write_job

PYTHON = shlex.quote(sys.executable)


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float


def rendered(file: Mapping[str, Any], run_id: str = "r-1") -> Job:
    return find("local").render(plan.make(spec.load_document("polyaxonfile.yml", file), run_id))


def written(file: Mapping[str, Any], folder: Path) -> Path:
    """The folder of the job of a file."""
    write_job(rendered(file), folder)
    return folder


def experiment(command: str | list[str], framework: str = "pytorch", **replicas: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "kind": "experiment",
        "framework": framework,
        "environment": {"replicas": replicas},
        "run": {"cmd": command},
    }


def free_base_port(count: int) -> int:
    """The first of that many ports in a row that nobody uses just now."""
    for _ in range(200):
        base = random.randrange(20_000, 32_000)  # below the range from which the system hands out its own
        with ExitStack() as held, suppress(OSError):
            for port in range(base, base + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return base
    raise AssertionError("no free ports")


def environment(replicas: int, **more: str) -> dict[str, str]:
    """This process's own, less what a run would set, and with ports that are free."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PHALANX_", "OMP_"))}
    return {**kept, "PHALANX_BASE_PORT": str(free_base_port(replicas)), **more}


def launch(folder: Path, replicas: int, **more: str) -> subprocess.Popen[str]:
    """The job just started, in the folder beside its own."""
    return subprocess.Popen(
        ["bash", str(folder / "start.sh")],
        cwd=folder.parent,
        env=environment(replicas, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, replicas: int, limit_s: float = 20.0, **more: str) -> Ended:
    """The job from start to end; a job that does not end by itself is a failure."""
    begin = time.monotonic()
    process = launch(folder, replicas, **more)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        put_away(process)
        pytest.fail(f"the run did not end within {limit_s} s")
    return Ended(process.returncode, out, err, time.monotonic() - begin)


def put_away(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / f"{name}.log").read_text(encoding="utf-8")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def survivors(folder: Path, patience_s: float = 30.0) -> list[str]:
    """Who of the processes that left their id in `<name>.pid` is alive after all; they are ended then."""
    files = sorted(folder.glob("*.pid"))
    pids = {file.stem: int(file.read_text(encoding="utf-8")) for file in files}
    deadline = time.monotonic() + patience_s
    while any(map(is_alive, pids.values())) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [name for name, pid in pids.items() if is_alive(pid)]
    for name in left:
        os.kill(pids[name], signal.SIGKILL)
    return left


def wait_for(files: list[Path], limit_s: float = 15.0) -> None:
    deadline = time.monotonic() + limit_s
    while not all(file.exists() and file.stat().st_size for file in files):
        assert time.monotonic() < deadline, "the replicas did not start"
        time.sleep(0.02)
