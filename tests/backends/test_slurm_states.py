"""What Slurm prints, read and said in plain words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.backends.contract import ENDED, RUNNING, WAITING
from phalanx.backends.slurm.states import (
    array_folder,
    error_of,
    group_by_job,
    may_pass,
    observed,
    owner,
    queue_rows,
    record_rows,
    refine,
    restarted_for,
    waiting_for,
)

RECORDED = sorted(Path(__file__).with_name("recorded").glob("slurm-*"))
QUEUE = """\
41|41|RUNNING|None|2026-11-16T06:06:35|N/A|x|node[1-2]|phalanx:abc:2|phalanx-abc
42|42|PENDING|Resources|2026-11-16T09:00:00|N/A|x||phalanx:def:1|phalanx-def
43|43+0|PENDING|Priority|N/A|N/A|x||phalanx:het:1|phalanx-het
44|43+1|PENDING|None|N/A|N/A|x||phalanx:het:1|phalanx-het
45|45|COMPLETED|None|2026-11-16T06:06:35|N/A|x|node1|(null)|a|strange|name
46|46_7|RUNNING|None|2026-11-16T06:06:35|N/A|x|node1|(null)|an array
"""


def test_a_queue_is_read_job_by_job() -> None:
    jobs = {job: observed(rows) for job, rows in group_by_job(queue_rows(QUEUE)).items()}
    assert jobs["41"].state == RUNNING
    assert (jobs["41"].run_id, jobs["41"].attempt, jobs["41"].nodes) == ("abc", 2, "node[1-2]")
    assert (jobs["42"].state, jobs["42"].starts_at) == (WAITING, "2026-11-16T09:00:00")
    assert jobs["42"].why == "it is next, and waits for enough free nodes (Resources)"
    assert (jobs["43"].state, jobs["43"].starts_at) == (WAITING, "")
    assert "Priority" in jobs["43"].why
    assert "44" not in jobs
    assert jobs["45"].run_id is None
    assert jobs["46_7"].state == RUNNING


@pytest.mark.parametrize(
    ("line", "cause", "why"),
    [
        ("7|COMPLETED|0:0|0:0|None|x|y|node1||n", "finished", "finished"),
        ("7|FAILED|7:0|0:0|None|x|y|node1||n", "lost", "the job failed (exit code 7)"),
        ("7|FAILED|0:11|0:0|None|x|y|node1||n", "lost", "the job failed (signal 11)"),
        ("7|CANCELLED by 1234567|0:0|0:0|None|x|y|node1||n", "stopped", "the job was cancelled by {user:1234567}"),
        ("7|CANCELLED|0:0|0:0|None|x|y|None assigned||n", "stopped", "the job was cancelled"),
        ("7|TIMEOUT|0:0|0:0|None|x|y|node1||n", "timeout", "ended by the time limit of its job"),
        ("7|OUT_OF_MEMORY|0:125|0:0|None|x|y|node1||n", "memory", "killed by Slurm for memory"),
        ("7|NODE_FAIL|0:0|0:0|None|x|y|node2||n", "lost", "node2 failed"),
        ("7|NODE_FAIL|0:0|0:0|None|x|y|node[2-3]||n", "lost", "one of node[2-3] failed"),
        ("7|PREEMPTED|0:0|0:0|None|x|y|node2||n", "lost", "preempted by a job of higher priority"),
        ("7|DEADLINE|0:0|0:0|None|x|y|node2||n", "timeout", "ended by the deadline of its job"),
    ],
)
def test_records_show_how_a_job_ended(line: str, cause: str, why: str) -> None:
    seen = observed(record_rows(line))
    assert (seen.state, seen.cause, seen.why) == (ENDED, cause, why)


def test_tasks_of_an_array_are_jobs_of_their_own() -> None:
    waiting = (
        "46|46_[3,5-7,10-20:5%2]|PENDING|JobArrayTaskLimit|N/A|N/A|x||phalanx-array:/home/me/arrays/abc|phalanx-abc"
    )
    rows = queue_rows(f"47|46_0|RUNNING|None|x|y|z|node1|phalanx-array:/home/me/arrays/abc|phalanx-abc\n{waiting}")
    assert [row.job for row in rows] == ["46_0", "46_3", "46_5", "46_6", "46_7", "46_10", "46_15", "46_20"]
    assert {array_folder(row) for row in rows} == {"/home/me/arrays/abc"}
    assert {owner(row) for row in rows} == {(None, 1)}
    assert "its limit of running tasks" in observed(rows[1:2]).why
    assert [row.job for row in record_rows("46_[1-2%4]|CANCELLED by 0|0:0|0:0|None|x|y|None assigned||n")] == [
        "46_1",
        "46_2",
    ]
    assert queue_rows(waiting.replace("[3,5-7", "[3,5-")) == []


def test_a_state_that_no_one_knows_is_no_end() -> None:
    assert observed(record_rows("7|LAUNCHING_ROCKETS|0:0|0:0|None|x|y|node1||n")).state == RUNNING


def test_lines_that_are_none_of_ours_do_no_harm() -> None:
    assert queue_rows("\nslurm_load_jobs error: nonsense\n|||||||||\nx|y|z\n") == []
    assert record_rows("12.batch|COMPLETED|0:0|0:0|None|x|y|node1||batch\n||\n") == []


def test_a_job_is_found_by_its_name_where_a_site_writes_comments_of_its_own() -> None:
    (row,) = queue_rows("41|41|RUNNING|None|x|y|z|node1|billing=7|phalanx-abc")
    assert owner(row) == ("abc", 1)
    (row,) = queue_rows("41|41|RUNNING|None|x|y|z|node1|phalanx:abc; rm -rf|other")
    assert owner(row) == (None, 1)


def test_every_reason_is_said_and_unknown_ones_as_they_are() -> None:
    assert waiting_for("(Priority)") == "jobs of higher priority come first (Priority)"
    assert waiting_for("ReqNodeNotAvail, UnavailableNodes:node[1-3]").startswith("a node that it needs")
    assert waiting_for("Nodes required for job are DOWN, DRAINED or reserved").startswith("the nodes that it needs")
    assert waiting_for("SomethingNew") == "SomethingNew"
    assert waiting_for("") == "Slurm gives no reason"
    assert "never start" in waiting_for("PartitionTimeLimit")


def test_why_a_job_was_started_again_is_in_its_earlier_records() -> None:
    earlier = "7|NODE_FAIL|0:0|0:0|None|x|y|node[1-2]||n\n7|PENDING|0:0|0:0|None|x|y|None assigned||n\n"
    assert restarted_for(record_rows(earlier)) == "a node failed, and Slurm restarts the job (one of node[1-2])"
    assert restarted_for(record_rows("7|PREEMPTED|0:0|0:0|None|x|y|node1||n")).startswith("preempted")
    assert restarted_for([]) == "Slurm restarts the job"


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
def test_what_may_pass_differs_from_what_will_not(complaint: str, passes: bool) -> None:
    assert may_pass(complaint) is passes


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-node1: error: StepId=25.1 exceeded memory limit (335175680 > 157286400), being killed",
        "slurmstepd: error: Exceeded job memory limit",
        "slurmstepd-node1: error: Detected 1 oom_kill event in StepId=1.batch.",
        "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0 cgroup.",
    ],
)
def test_that_a_step_was_killed_for_memory_stands_in_the_output_of_its_job(line: str) -> None:
    failed = observed(record_rows("7|FAILED|1:0|0:0|None|x|y|node1||n"))
    assert refine(failed, ["something", line]).cause == "memory"
    assert refine(failed, ["something"]) == failed
    cancelled = observed(record_rows("7|CANCELLED by 5|0:0|0:0|None|x|y|node1||n"))
    assert refine(cancelled, [line]) == cancelled


def test_complaints_are_reported_without_the_name_of_the_command() -> None:
    said = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid\n"
    assert error_of(said) == "invalid partition specified: x; Batch job submission failed: Invalid"
    assert error_of("") == "no error message"


# what real clusters said ---------------------------------------------------------------------------------------------

# Situation: the state, cause and beginning of the words that squeue's answer means.
QUEUED = {
    "cancelled-while-pending": (ENDED, "stopped", "the job was cancelled"),
    "cancelled-while-running": (ENDED, "stopped", "the job was cancelled"),
    "completed": (ENDED, "finished", "finished"),
    "completing": (RUNNING, "", ""),
    "configuring": (WAITING, "", ""),
    "deadline": (ENDED, "timeout", "ended by the deadline"),
    "failed-exit-7": (ENDED, "lost", "the job failed"),
    "failed-by-signal": (ENDED, "lost", "the job failed"),
    "het-cancelled-while-pending": (ENDED, "stopped", "the job was cancelled"),
    "het-completed": (ENDED, "finished", "finished"),
    "het-failed": (ENDED, "lost", "the job failed"),
    "het-node-fail": (ENDED, "lost", ""),
    "het-pending": (WAITING, "", ""),
    "het-requeued-pending": (WAITING, "", ""),
    "het-running": (RUNNING, "", ""),
    "node-fail": (ENDED, "lost", "one of node"),
    "node-fail-requeued": (WAITING, "", ""),
    "node-fail-requeued-completed": (ENDED, "finished", "finished"),
    "out-of-memory-in-batch": (ENDED, "memory", "killed by Slurm for memory"),
    "pending-begin-time": (WAITING, "", "its begin time has not been reached"),
    "pending-dependency": (WAITING, "", "another job must end first"),
    "pending-dependency-never": (WAITING, "", "the job that it depends on failed: it will never start"),
    "pending-held-by-user": (WAITING, "", "it is held by its user"),
    "pending-node-down": (WAITING, "", "a node that it needs is not available"),
    "pending-partition-time-limit": (WAITING, "", "it requests more time than the partition allows"),
    "pending-priority": (WAITING, "", "jobs of higher priority come first"),
    "pending-resources": (WAITING, "", "it is next, and waits for enough free nodes"),
    "preempted": (ENDED, "lost", "preempted"),
    "preempted-requeued": (WAITING, "", ""),
    "requeued-held": (WAITING, "", ""),
    "requeued-pending": (WAITING, "", ""),
    "running": (RUNNING, "", ""),
    "suspended": (RUNNING, "", "suspended"),
    "timeout": (ENDED, "timeout", "ended by the time limit"),
}
ACCOUNTED = {
    "cancelled-while-running": ("stopped", "the job was cancelled by {user:0}"),
    "completed": ("finished", "finished"),
    "failed-exit-7": ("lost", "the job failed (exit code 7)"),
    "failed-by-signal": ("lost", "the job failed (signal 9)"),
    "het-completed": ("finished", "finished"),
    "node-fail": ("lost", "one of node"),
    "out-of-memory-in-batch": ("memory", "killed by Slurm for memory"),
    "out-of-memory-in-step": ("memory", "killed by Slurm for memory"),
    "preempted": ("lost", "preempted"),
    "timeout": ("timeout", "ended by the time limit"),
}


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
@pytest.mark.parametrize("situation", QUEUED)
def test_what_a_real_queue_said_is_understood(release: Path, situation: str) -> None:
    rows = queue_rows((release / situation / "squeue.txt").read_text())
    assert len(group_by_job(rows)) == 1
    seen = observed(rows)
    state, cause, why = QUEUED[situation]
    assert seen.state == state
    assert seen.why.startswith(why)
    assert not cause or seen.cause == cause


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
@pytest.mark.parametrize("situation", ACCOUNTED)
def test_what_real_records_said_is_understood(release: Path, situation: str) -> None:
    seen = observed(record_rows((release / situation / "sacct.txt").read_text()))
    cause, why = ACCOUNTED[situation]
    assert (seen.state, seen.cause) == (ENDED, cause)
    assert seen.why.startswith(why)


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
def test_every_reason_that_was_seen_has_words(release: Path) -> None:
    for file in release.glob("pending-*/squeue.txt"):
        for row in queue_rows(file.read_text()):
            assert row.reason in ("None", "") or waiting_for(row.reason) != row.reason, (file, row.reason)


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("situation", "words"),
    [("node-fail-requeued-completed", "a node failed"), ("preempted-requeued-completed", "preempted")],
)
def test_why_a_real_job_was_started_again(release: Path, situation: str, words: str) -> None:
    assert restarted_for(record_rows((release / situation / "sacct-D.txt").read_text())).startswith(words)


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
def test_refusals_of_a_real_controller_are_final_and_its_silence_is_not(release: Path) -> None:
    for refused in _answers(json.loads((release / "refused.json").read_text())):
        assert may_pass(refused) == ("MaxSubmit" in refused), refused  # jobs that end make room for others
    silent = json.loads((release / "silent.json").read_text())
    answers = _answers(silent)
    assert answers
    assert all(map(may_pass, answers)), answers


def _answers(content: object) -> list[str]:
    """What was said on standard error, wherever in a recording it stands."""
    if isinstance(content, dict):
        own = [content["err"]] if content.get("code") and isinstance(content.get("err"), str) else []
        return own + [text for value in content.values() for text in _answers(value)]
    return [text for value in content for text in _answers(value)] if isinstance(content, list) else []
