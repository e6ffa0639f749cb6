"""Jobs that a killed scheduler may have submitted: found before anything is submitted, stopped or concluded."""

from __future__ import annotations

import errno
import os
import time

import pytest

from phalanx.backends.contract import ENDED, RUNNING, WAITING, EngineUnavailable, Observation
from phalanx.ends import Cause
from phalanx.scheduler import engine_executor, loop, submission_records, submissions
from phalanx.scheduler.submission_records import SubmissionRecord
from tests.scheduler.scripted_engine import Cluster


def test_a_job_is_not_submitted_again_after_its_scheduler_was_killed(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.lose_handle(run)
    cluster.turn()
    assert list(cluster.engine.jobs) == ["slurm:1"]
    cluster.handle_file(run).unlink()  # a power failure may lose it
    cluster.scheduler = cluster.new_scheduler()
    cluster.turn()
    assert list(cluster.engine.jobs) == ["slurm:1"]
    assert cluster.handle(run) == "slurm:1"


def test_a_job_that_ended_before_its_handle_was_written_is_found_in_the_records(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.engine.recalled = {
        "slurm:1": cluster.engine.jobs.pop("slurm:1")._replace(state=ENDED, cause=Cause.FINISHED)
    }
    cluster.end(run, "finished")
    cluster.lose_handle(run)
    cluster.turn()
    assert cluster.run(run).status == "succeeded"
    assert cluster.engine.jobs == {}


def test_the_handle_is_written_as_soon_as_the_job_is_accepted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the end of the pass, which may never come."""
    run = cluster.submit()
    monkeypatch.setattr(loop, "_apply_refusals", lambda *_: None)
    cluster.turn(1)
    assert cluster.handle(run) == "slurm:1"


def test_the_intent_is_written_before_the_job_is_submitted(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.executor.view.ask()
    cluster.engine.answers.clear()
    cluster.turn(1)
    record = None
    deadline = time.monotonic() + 10.0
    while record is None and time.monotonic() < deadline:
        record = SubmissionRecord.read(cluster.scheduler.attempt_folder(cluster.run(run)))
    assert record is not None
    assert record.handle is None
    assert abs(time.time() - record.start.at) < 60.0
    assert cluster.engine.submissions == 0


def test_while_a_submission_may_be_under_way_none_is_made(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.engine.jobs.clear()
    cluster.engine.submitting = {run}
    cluster.lose_handle(run)
    cluster.turn()
    assert cluster.engine.jobs == {}
    assert cluster.waiting(run) == "the command that submits it to slurm has not ended; its scheduler was killed"
    cluster.engine.submitting.clear()
    cluster.turn()
    assert list(cluster.engine.jobs) == ["slurm:1"]


def test_a_job_that_appears_late_is_not_doubled(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that hung may accept it after it has answered a question."""
    run = cluster.submit()
    cluster.turn()
    job = cluster.engine.jobs.pop("slurm:1")
    monkeypatch.setattr(submission_records, "LATE_S", 600.0)
    cluster.lose_handle(run)
    cluster.turn()
    assert "must report whether it has a job" in cluster.waiting(run)
    cluster.engine.jobs["slurm:1"] = job
    cluster.turn()
    assert (cluster.handle(run), cluster.engine.submissions) == ("slurm:1", 1)


@pytest.mark.parametrize("is_known", [True, False], ids=["by its comment", "by its claim"])
def test_the_job_of_a_running_run_is_found_again(cluster: Cluster, is_known: bool) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.agent(run)
    cluster.turn()
    assert cluster.run(run).status == "running"
    if not is_known:
        cluster.claim(run, "slurm:1")
        cluster.engine.fault = EngineUnavailable("the controller is down")
    cluster.lose_handle(run)
    cluster.turn()
    assert cluster.handle(run) == "slurm:1"


def test_a_running_run_without_a_handle_is_stopped_with_its_job(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.agent(run)
    cluster.turn()
    cluster.lose_handle(run)
    cluster.stop(run)
    cluster.turn()
    assert cluster.engine.cancelled == ["slurm:1"]
    cluster.became("slurm:1", ENDED, "the job was cancelled", "stopped")
    cluster.turn()
    assert cluster.run(run).status == "stopped"


def test_stop_waits_until_a_submission_is_over_and_cancels_its_job(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    job = cluster.engine.jobs.pop("slurm:1")
    cluster.engine.submitting = {run}
    cluster.lose_handle(run)
    cluster.stop(run)
    cluster.turn()
    assert cluster.run(run).status == "scheduled"
    cluster.engine.submitting.clear()
    cluster.engine.jobs["slurm:1"] = job
    cluster.turn()
    assert cluster.engine.cancelled == ["slurm:1"]
    cluster.became("slurm:1", ENDED, "the job was cancelled", "stopped")
    cluster.turn()
    assert (cluster.run(run).status, cluster.run(run).reason) == ("stopped", "enough")


def test_stop_waits_for_a_submission_of_this_scheduler(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.executor.view.ask()
    cluster.engine.answers.clear()
    cluster.turn(1)
    cluster.stop(run)
    cluster.turn(2)
    assert cluster.run(run).status == "scheduled"
    cluster.engine.answers.set()
    cluster.turn()
    assert cluster.engine.cancelled == ["slurm:1"]


@pytest.mark.slow
def test_a_run_that_was_not_submitted_stops_at_once_while_the_engine_hangs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "AT_ONCE", 4)
    monkeypatch.setattr(submissions, "MOST_ORDERS", 8)
    runs = [cluster.submit() for _ in range(12)]
    cluster.executor.view.ask()
    cluster.engine.answers.clear()
    cluster.turn(1)
    began = time.monotonic()
    for run in runs[6:]:  # some wait in the executor's threads, some in our queue
        cluster.stop(run)
    cluster.turn(1)
    assert time.monotonic() - began < 2.0
    assert {cluster.run(run).status for run in runs[6:]} == {"stopped"}
    cluster.engine.answers.set()
    cluster.turn(4)
    assert cluster.engine.submissions == 6


def test_a_submission_without_an_answer_is_looked_for_before_the_next(cluster: Cluster) -> None:
    """sbatch timed out, and the controller accepted the job nevertheless."""
    run = cluster.submit()
    cluster.engine.fault = EngineUnavailable("no answer after 60 s")
    cluster.turn()
    cluster.engine.jobs["slurm:7"] = Observation(WAITING, "because", run_id=run, attempt=1)
    cluster.engine.fault = None
    cluster.turn()
    assert (cluster.handle(run), cluster.engine.submissions) == ("slurm:7", 0)


def test_of_two_jobs_of_an_attempt_the_one_that_runs_it_counts(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.claim(run, "slurm:2")
    cluster.agent(run)
    cluster.engine.jobs["slurm:2"] = Observation(RUNNING, run_id=run)
    cluster.became("slurm:1", ENDED, "finished", "finished")
    cluster.turn()
    assert cluster.run(run).status == "running"
    assert cluster.handle(run) == "slurm:2"
    cluster.end(run, "finished")
    cluster.became("slurm:2", ENDED, "finished", "finished")
    cluster.turn()
    assert cluster.run(run).status == "succeeded"


def test_a_full_disk_delays_a_submission(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record, nothing is submitted."""
    real, is_full = SubmissionRecord.write, True

    def write(record: SubmissionRecord, *given: object) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(record, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(SubmissionRecord, "write", write)
    run = cluster.submit()
    cluster.turn()
    assert (cluster.run(run).status, cluster.engine.submissions) == ("scheduled", 0)
    is_full = False
    cluster.turn()
    assert (cluster.run(run).status, cluster.engine.submissions) == ("scheduled", 1)


def test_a_run_that_waits_for_a_requeued_job_is_stopped_with_that_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1")
    cluster.agent(run)
    cluster.turn()
    cluster.became("slurm:1", WAITING, "because")
    monkeypatch.setattr(submissions, "MOST_ORDERS", 0)  # so that its next attempt does not start in the same pass
    cluster.turn()
    assert cluster.run(run).status == "resuming"
    cluster.stop(run)
    cluster.turn(1)
    assert cluster.engine.cancelled == ["slurm:1"]
    assert cluster.run(run).status == "stopped"


def test_a_job_that_still_runs_some_time_after_its_run_has_ended_is_cancelled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, other = cluster.submit(), cluster.submit()
    cluster.turn()
    handle = next(handle for handle, seen in cluster.engine.jobs.items() if seen.run_id == over)
    cluster.became(handle, RUNNING)
    cluster.end(over, "finished")
    cluster.turn()
    assert cluster.run(over).status == "succeeded"
    assert cluster.engine.cancelled == [], "its script is about to end"
    monkeypatch.setattr(engine_executor, "STRAY_S", 0.0)
    cluster.turn(1)
    assert cluster.engine.cancelled == [handle]
    assert cluster.run(other).status == "scheduled"
