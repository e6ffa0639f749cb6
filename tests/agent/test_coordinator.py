"""The coordinator of a job: which attempt it claims, when the ranks may start, and its exit code. With Slurm itself it
is tried in tests/slurm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.agent import allocation
from phalanx.backends import agent_zip
from phalanx.backends.slurm.backend import _COORDINATE
from tests.agent.test_allocation import LINES, NOTHING_MADE, Placed, agent, call, reported, surroundings

PATIENCE_S = 60


@pytest.fixture(name="placed")
def placed_fixture(tmp_path: Path) -> Placed:
    return Placed(tmp_path)


@contextmanager
def coordinator(placed: Placed, job: str = "7", submitted: str = "1") -> Iterator[subprocess.Popen[str]]:
    """As the script starts it; killed at the end if it still runs."""
    archive = agent_zip.agent_file(placed.folder)
    command = [sys.executable, "-I", "-S", "-c", _COORDINATE, str(archive), str(placed.folder), submitted, "1"]
    started = subprocess.Popen(
        command,
        env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": job},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(lines))
    process.stdin.flush()


def reports() -> list[str]:
    return reported({name: {**NOTHING_MADE, **line} for name, line in LINES.items()})


def test_ranks_may_start_when_all_have_reported_and_the_job_ends_as_they_do(placed: Placed) -> None:
    with coordinator(placed) as process:
        assert said(process) == "1\n"
        lines = reports()
        tell(process, *lines[:-1])
        assert not Path(placed.facts_file()).exists()
        tell(process, lines[-1])
        assert said(process) == "go\n"
        assert placed.facts()["job"] == "slurm:7"
        for name in LINES:
            placed.end(name, "finished")
        _, errors = process.communicate("a line of a rank\n", timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "a line of a rank\n")
    assert (placed.folder / "outputs").is_dir()


@pytest.mark.parametrize(("cause", "code"), [("segment", 85), ("error", 1)])
def test_the_exit_code_says_whether_a_segment_follows(tmp_path: Path, cause: str, code: int) -> None:
    placed = Placed(tmp_path, slurm={"segment": "24h"})
    with coordinator(placed) as process:
        tell(process, *reports())
        assert (said(process), said(process)) == ("1\n", "go\n")
        for name in LINES:
            placed.end(name, cause)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code


def test_a_step_that_ends_before_all_have_reported_fails_the_job(placed: Placed) -> None:
    with coordinator(placed) as process:
        answer, errors = process.communicate("".join(reports()[:1]), timeout=PATIENCE_S)
    assert (process.returncode, answer) == (1, "1\n")
    assert errors == "phalanx: not all nodes could be prepared: no report from worker-0, worker-1\n"


def test_a_second_job_has_nothing_to_do_and_does_not_fail(placed: Placed) -> None:
    with coordinator(placed) as first:
        assert said(first) == "1\n"
    with coordinator(placed, job="8") as second:
        answer, errors = second.communicate(timeout=PATIENCE_S)
    assert (second.returncode, answer, errors) == (0, "\n", "nothing to do: attempt 1 belongs to slurm:7\n")


def test_a_job_submitted_by_hand_takes_the_next_free_attempt(placed: Placed) -> None:
    with coordinator(placed, submitted="by-hand") as first:
        assert said(first) == "1\n"
    with coordinator(placed, job="8", submitted="by-hand") as second:
        assert said(second) == "2\n"


def test_a_job_that_is_started_again_after_its_run_has_finished_does_nothing(placed: Placed) -> None:
    with coordinator(placed) as process:
        tell(process, *reports())
        assert (said(process), said(process)) == ("1\n", "go\n")
        for name in LINES:
            placed.end(name, "finished")
    with coordinator(placed) as again:
        answer, errors = again.communicate(timeout=PATIENCE_S)
    assert (again.returncode, answer) == (0, "\n")
    assert errors == "nothing to do: the run had just finished when the job was started again\n"


def test_a_folder_that_cannot_be_written_fails_the_job_in_one_line(placed: Placed) -> None:
    (placed.folder / "job").rename(placed.folder / "elsewhere")
    with coordinator(placed) as process:
        answer, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, answer) == (1, "")
    assert errors.startswith(f"phalanx: cannot write in {placed.folder}: ")
    assert errors.count("\n") == 1


def test_a_rank_that_joins_starts_when_it_is_told_to(tmp_path: Path) -> None:
    placed = Placed(tmp_path, "echo started", replicas={"n_workers": 0})
    variables = {"SLURM_PROCID": "0", "SLURMD_NODENAME": "localhost"}
    rank = subprocess.Popen(
        call(placed, "--join"),
        env=surroundings(variables),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with rank:
        report = said(rank)
        assert allocation.gather(placed.plan, placed.facts_file(), 1, [report]) == 0
        assert not (tmp_path / "replicas").exists()
        tell(rank, "go\n")
        assert rank.wait(PATIENCE_S) == 0
    assert (tmp_path / "replicas" / "master-0" / "attempt-1" / "log").read_text() == "started\n"


def test_a_rank_does_not_start_if_the_job_ends_before_all_have_reported(tmp_path: Path) -> None:
    placed = Placed(tmp_path, replicas={"n_workers": 0})
    rank = agent(placed, "--join", SLURM_PROCID="0", SLURMD_NODENAME="localhost")  # its input is at its end
    assert rank.wait(PATIENCE_S) == 1
    assert not (tmp_path / "replicas").exists()


def test_the_claim_does_not_wait_for_what_is_needed_later(placed: Placed) -> None:
    """The ranks start only after the claim."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import phalanx.agent.jobs.coordinator; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", code, str(agent_zip.agent_file(placed.folder))]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.split()
    assert "phalanx.agent.claims" in found
    assert {"phalanx.agent.launcher", "phalanx.agent.virtualenv", "subprocess", "socket"}.isdisjoint(found)
