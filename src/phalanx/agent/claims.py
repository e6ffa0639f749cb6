"""Claims: one job runs an attempt, even if it was submitted twice. Standard library only, Python 3.8+.

Before it prepares anything, a job creates the claim of its attempt, which only one job can do. A job that Slurm starts
again has the same number, and goes on with its next attempt.
"""

from __future__ import annotations

import json
import os
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import read_json, write_new
from phalanx.naming import FINAL_STATUSES
from phalanx.spool import Reader

HANDLE = "slurm"


class ClaimRefused(Exception):
    """Another job runs this attempt, or the run is over: this job has nothing to do."""


def claim(run_folder: str, attempt: int, job: str) -> None:
    """Claim one attempt for a job. Raises ClaimRefused, OSError."""
    path = os.path.join(run_folder, run_paths.claim_file(attempt))
    owner = owner_of(run_folder, attempt)
    if owner is None:
        try:
            write_new(path, json.dumps({"job": job}).encode())
        except FileExistsError:
            pass
        owner = owner_of(run_folder, attempt)
    if owner != job:
        raise ClaimRefused(f"attempt {attempt} belongs to {owner or 'another job'}")


def claim_next(run_folder: str, first: int, job: str) -> int:
    """Claim the first attempt from `first` on that this job has not started yet. Raises ClaimRefused, OSError."""
    status = last_status(run_folder)
    if status in FINAL_STATUSES:
        raise ClaimRefused(f"the run is over ({status})")
    attempt = first
    while True:
        claim(run_folder, attempt, job)
        if not _has_facts(run_folder, attempt):
            return attempt
        attempt += 1


def claim_unclaimed(run_folder: str, first: int, job: str) -> int:
    """The same for a job that a person submitted: it takes the next attempt that no other job has. Raises OSError."""
    attempt = first
    while True:
        try:
            claim(run_folder, attempt, job)
            if not _has_facts(run_folder, attempt):
                return attempt
        except ClaimRefused:
            pass
        attempt += 1


def owner_of(run_folder: str, attempt: int) -> str | None:
    """The job that runs an attempt, as the job has recorded; None if no job has claimed it."""
    for name in (run_paths.claim_file(attempt), run_paths.facts_file(attempt)):
        found: Any = read_json(os.path.join(run_folder, name))
        if isinstance(found, dict) and found.get("job"):
            return str(found["job"])
    return None


def last_status(run_folder: str) -> str | None:
    """The status of a run by its history; None if it has none, as in a folder that was rendered by `phalanx plan`."""
    status = None
    for record in Reader(os.path.join(run_folder, run_paths.HISTORY)).poll():
        status = record.data().get("status")
    return status


def _has_facts(run_folder: str, attempt: int) -> bool:
    return os.path.exists(os.path.join(run_folder, run_paths.facts_file(attempt)))


def job_here() -> str:
    """The handle of the job of this process."""
    return f"{HANDLE}:{job_number()}"


def job_number() -> str:
    """The number of the job of this process as commands of Slurm take it. That of the last task of an array is also the
    number of the whole array, unless it is written as that of a task."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")
