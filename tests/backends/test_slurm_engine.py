"""The commands of the Slurm engine, beside programs that stand in for Slurm's. The real ones are in tests/slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.agent.processes import boot_id
from phalanx.backends.contract import EngineUnavailable, JobRejected, SubmissionStart
from phalanx.backends.slurm import engine as slurm_engine
from phalanx.backends.slurm.engine import SlurmEngine

SUBMIT = """
import os, sys
from pathlib import Path
from phalanx.backends.slurm.engine import SlurmEngine
folder = Path(sys.argv[1])
SlurmEngine().submit(folder, "r1", 2, 1, working=folder, environment=dict(os.environ))
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    for name, body in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def submit(folder: Path) -> str:
    return SlurmEngine().submit(folder, "r1", 2, 1, working=folder, environment=dict(os.environ))


def test_a_submission_is_seen_until_it_is_over_though_its_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(tmp_path, monkeypatch, sbatch=f"touch {tmp_path}/began; until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    engine, start = SlurmEngine(), SubmissionStart(time.time(), boot_id())
    process = subprocess.Popen([sys.executable, "-c", SUBMIT, str(tmp_path)])
    until((tmp_path / "began").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert engine.is_submitting("r1", 2, start)
    assert not engine.is_submitting("r1", 1, start)
    assert not engine.is_submitting("r", 2, start)
    (tmp_path / "go").touch()
    until(lambda: not engine.is_submitting("r1", 2, start))


def test_a_submission_of_another_machine_is_over_after_its_timeout() -> None:
    engine, now = SlurmEngine(), time.time()
    assert engine.is_submitting("r1", 1, SubmissionStart(now, "another"))
    assert not engine.is_submitting("r1", 1, SubmissionStart(now - 70.0, "another"))
    assert not engine.is_submitting("r1", 1, SubmissionStart(now + 1e6, "another")), "its clock is wrong"


def test_the_timeout_of_a_command_holds_for_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(tmp_path, monkeypatch, sbatch=f"echo $$ >{tmp_path}/pid; sleep 300")
    monkeypatch.setattr(slurm_engine, "PATIENCE_S", 0.5)
    with pytest.raises(EngineUnavailable, match=r"sbatch does not respond: no answer after 0\.5 s"):
        submit(tmp_path)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("body", "fault", "words"),
    [
        ("echo 'sbatch: error: Invalid account' >&2; exit 1", JobRejected, "Invalid account"),
        ("echo 'sbatch: error: Socket timed out on send/recv' >&2; exit 1", EngineUnavailable, "Socket timed out"),
        ("echo nonsense", EngineUnavailable, "sbatch did not print a job number"),
    ],
)
def test_errors_of_sbatch_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fault: type[Exception], words: str
) -> None:
    slurm(tmp_path, monkeypatch, sbatch=body)
    with pytest.raises(fault, match=words):
        submit(tmp_path)


def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    (tmp_path / "timeout").symlink_to("/usr/bin/timeout")
    with pytest.raises(EngineUnavailable, match="`sbatch` is not on the PATH"):
        SlurmEngine().submit(tmp_path, "r1", 1, 1, working=tmp_path, environment={"PATH": str(tmp_path)})
