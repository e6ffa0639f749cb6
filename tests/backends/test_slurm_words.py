"""What Slurm prints, read and said in plain words."""

from __future__ import annotations

import pytest

from phalanx.backends.engines import ENDED, RUNNING, WAITING
from phalanx.backends.slurm_words import (
    by_job,
    complaint_of,
    may_pass,
    observed,
    owner,
    queue_rows,
    record_rows,
    restarted_for,
    waiting_for,
)

QUEUE = """\
41|41|RUNNING|2026-11-16T06:06:35|node[1-2]|None|phalanx-abc|phalanx:abc:2
42|42|PENDING|2026-11-16T09:00:00||Resources|phalanx-def|phalanx:def:1
43|43+0|PENDING|N/A||Priority|phalanx-het|phalanx:het:1
44|43+1|PENDING|N/A||None|phalanx-het|phalanx:het:1
45|45|COMPLETED|2026-11-16T06:06:35|node1|None|a|strange|name|(null)
46|46_7|RUNNING|2026-11-16T06:06:35|node1|None|an array|(null)
"""


def test_a_queue_is_read_job_by_job() -> None:
    jobs = {job: observed(rows) for job, rows in by_job(queue_rows(QUEUE)).items()}
    assert jobs[41].state == RUNNING
    assert (jobs[41].run_id, jobs[41].attempt, jobs[41].nodes) == ("abc", 2, "node[1-2]")
    assert (jobs[42].state, jobs[42].starts_at) == (WAITING, "2026-11-16T09:00:00")
    assert jobs[42].why == "it is next, and waits for enough free nodes (Resources)"
    assert (jobs[43].state, jobs[43].starts_at) == (WAITING, "")
    assert "Priority" in jobs[43].why
    assert 44 not in jobs
    assert jobs[45].run_id is None
    assert jobs[46].state == RUNNING


@pytest.mark.parametrize(
    ("line", "cause", "why"),
    [
        ("7|COMPLETED|0:0|node1|n|", "finished", "finished"),
        ("7|FAILED|7:0|node1|n|", "lost", "the job failed (exit code 7)"),
        ("7|FAILED|0:11|node1|n|", "lost", "the job failed (signal 11)"),
        ("7|CANCELLED by 1234567|0:0|node1|n|", "stopped", "the job was cancelled by {user:1234567}"),
        ("7|CANCELLED|0:0|None assigned|n|", "stopped", "the job was cancelled"),
        ("7|TIMEOUT|0:0|node1|n|", "timeout", "ended by the time limit of its job"),
        ("7|OUT_OF_MEMORY|0:125|node1|n|", "memory", "killed by Slurm for memory"),
        ("7|NODE_FAIL|0:0|node2|n|", "lost", "node2 failed"),
        ("7|NODE_FAIL|0:0|node[2-3]|n|", "lost", "one of node[2-3] failed"),
        ("7|PREEMPTED|0:0|node2|n|", "lost", "preempted by a job of higher priority"),
        ("7|DEADLINE|0:0|node2|n|", "timeout", "ended by the deadline of its job"),
    ],
)
def test_records_tell_how_a_job_ended(line: str, cause: str, why: str) -> None:
    seen = observed(record_rows(line))
    assert (seen.state, seen.cause, seen.why) == (ENDED, cause, why)


def test_a_state_that_nobody_knows_is_no_end() -> None:
    assert observed(record_rows("7|LAUNCHING_ROCKETS|0:0|node1|n|")).state == RUNNING


def test_lines_that_are_none_of_ours_do_no_harm() -> None:
    assert queue_rows("\nslurm_load_jobs error: nonsense\n|||||||\nx|y|z\n") == []
    assert record_rows("12.batch|COMPLETED|0:0|node1|batch|\n||\n") == []


def test_a_job_is_found_by_its_name_where_a_site_writes_comments_of_its_own() -> None:
    (row,) = queue_rows("41|41|RUNNING|x|node1|None|phalanx-abc|billing=7")
    assert owner(row) == ("abc", 1)
    (row,) = queue_rows("41|41|RUNNING|x|node1|None|other|phalanx:abc; rm -rf")
    assert owner(row) == (None, 1)


def test_every_reason_is_said_and_unknown_ones_as_they_are() -> None:
    assert waiting_for("(Priority)") == "jobs of higher priority come first (Priority)"
    assert waiting_for("ReqNodeNotAvail, UnavailableNodes:node[1-3]").startswith("a node that it needs")
    assert waiting_for("Nodes required for job are DOWN, DRAINED or reserved").startswith("the nodes that it needs")
    assert waiting_for("SomethingNew") == "SomethingNew"
    assert waiting_for("") == "Slurm does not say why"
    assert "never start" in waiting_for("PartitionTimeLimit")


def test_why_a_job_was_started_again_is_in_its_earlier_records() -> None:
    earlier = "7|NODE_FAIL|0:0|node[1-2]|n|\n7|PENDING|0:0|None assigned|n|\n"
    assert restarted_for(record_rows(earlier)) == "a node failed, and Slurm starts it again (one of node[1-2])"
    assert restarted_for(record_rows("7|PREEMPTED|0:0|node1|n|")).startswith("preempted")
    assert restarted_for([]) == "Slurm starts it again"


@pytest.mark.parametrize(
    ("complaint", "passes"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", True),
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates", True),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", False),
        ("sbatch: error: invalid partition specified: nosuch", False),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", False),
    ],
)
def test_what_may_pass_is_told_from_what_will_not(complaint: str, passes: bool) -> None:
    assert may_pass(complaint) is passes


def test_complaints_are_told_without_the_name_of_the_command() -> None:
    said = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid\n"
    assert complaint_of(said) == "invalid partition specified: x; Batch job submission failed: Invalid"
    assert complaint_of("") == "it did not say why"
