"""A test that hangs fails, says where, and leaves no process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import deadlines

ROOT = Path(__file__).resolve().parent.parent
HANGING = """
import subprocess, pytest

@pytest.mark.timeout(2)
def test_hangs():
    subprocess.Popen(["sh", "-c", "setsid sleep 86421 & sleep 86422"]).wait()

def test_the_next_one_runs():
    pass
"""


@pytest.mark.slow
def test_a_test_that_hangs_fails_and_its_processes_are_killed(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.deadlines",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "Timeout (>2.0s)" in done.stdout
    killed = done.stdout.partition("Processes of the test, killed")[2]
    assert "sleep 86421" in killed
    assert "sleep 86422" in killed
    assert not [command for command in map(_command, Path("/proc").glob("[0-9]*")) if "sleep 8642" in command]


def test_suites_that_bring_up_clusters_have_longer_deadlines() -> None:
    assert all((ROOT / "tests" / suite).is_dir() for suite in deadlines.PATIENT)


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
