"""One job runs an attempt, even if two were submitted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from phalanx import run_paths
from phalanx.agent.claims import ClaimRefused, claim, claim_next, claim_unclaimed, owner_of
from phalanx.home.run_folder import RunFolder
from phalanx.store import DONE, StatusChange


@pytest.fixture(name="run")
def run_fixture(tmp_path: Path) -> str:
    (tmp_path / "job").mkdir()
    return str(tmp_path)


def begins(run: str, attempt: int, job: str) -> None:
    Path(run, run_paths.facts_file(attempt)).write_text(f'{{"job": "{job}"}}')


def test_the_first_job_takes_an_attempt_and_a_second_one_is_refused(run: str) -> None:
    assert claim_next(run, 1, "slurm:1") == 1
    with pytest.raises(ClaimRefused, match="attempt 1 belongs to slurm:1"):
        claim_next(run, 1, "slurm:2")
    assert owner_of(run, 1) == "slurm:1"


def test_a_job_that_is_started_again_takes_its_next_attempt(run: str) -> None:
    assert claim_next(run, 1, "slurm:1") == 1
    assert claim_next(run, 1, "slurm:1") == 1  # it had not begun
    begins(run, 1, "slurm:1")
    assert claim_next(run, 1, "slurm:1") == 2
    begins(run, 2, "slurm:1")
    assert claim_next(run, 1, "slurm:1") == 3


def test_a_job_that_is_started_again_does_not_run_beside_the_job_of_the_next_attempt(run: str) -> None:
    claim_next(run, 1, "slurm:1")
    begins(run, 1, "slurm:1")
    assert claim_next(run, 2, "slurm:2") == 2
    for _ in range(2):
        with pytest.raises(ClaimRefused, match="attempt 2 belongs to slurm:2"):
            claim_next(run, 1, "slurm:1")
        begins(run, 2, "slurm:2")


def test_an_attempt_of_an_older_version_has_no_claim_but_facts(run: str) -> None:
    begins(run, 1, "slurm:1")
    with pytest.raises(ClaimRefused):
        claim_next(run, 1, "slurm:2")
    assert claim_next(run, 1, "slurm:1") == 2


def test_a_person_who_submits_again_gets_the_next_attempt(run: str) -> None:
    assert claim_unclaimed(run, 1, "slurm:1") == 1
    assert claim_unclaimed(run, 1, "slurm:2") == 2
    begins(run, 2, "slurm:2")
    assert claim_unclaimed(run, 1, "slurm:2") == 3


@pytest.mark.parametrize("status", ["running", *DONE])
def test_a_job_of_a_run_that_is_over_has_nothing_to_do(run: str, status: str) -> None:
    for number, changed in enumerate(("created", status), 1):
        RunFolder(Path(run)).append(StatusChange("r-1", number, 1, changed, "", datetime.now(UTC)))
    if status in DONE:
        with pytest.raises(ClaimRefused, match=rf"the run is over \({status}\)"):
            claim_next(run, 1, "slurm:1")
    else:
        assert claim_next(run, 1, "slurm:1") == 1


def test_of_many_jobs_at_the_same_moment_one_takes_the_attempt(run: str) -> None:
    def take(number: int) -> bool:
        try:
            claim(run, 1, f"slurm:{number}")
        except ClaimRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(64))) == 1
    assert sorted(path.name for path in Path(run, "job").iterdir()) == ["attempt-1.claim.json"]
