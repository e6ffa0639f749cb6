"""Runs elsewhere: what is made of an engine's word and of what agents left. Slurm's own is tried in tests/slurm."""

from __future__ import annotations

import time
from threading import Timer

import pytest

from phalanx.backends.contract import ENDED, RUNNING, WAITING, EngineUnavailable, JobRejected, Observation
from phalanx.ends import Cause
from phalanx.scheduler import engine_executor
from phalanx.scheduler.runner import SchedulerRunner
from tests.agent.running import wait_for
from tests.scheduler.scripted_engine import Cluster, ScriptedEngine


def test_a_run_waits_starts_runs_and_finishes(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    assert cluster.run(run).status == "scheduled"
    assert cluster.works.store.facts(run)["waiting"]["why"] == "slurm:1 waits: because"
    cluster.became("slurm:1", RUNNING)
    cluster.turn()
    assert cluster.run(run).status == "starting"
    cluster.agent(run)
    cluster.turn()
    assert cluster.run(run).status == "running"
    cluster.end(run, "finished")
    cluster.turn()
    assert cluster.run(run).status == "succeeded"
    assert list(cluster.engine.jobs) == ["slurm:1"]


@pytest.mark.slow
def test_a_thousand_runs_cost_one_poll(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [cluster.submit() for _ in range(100)]
    cluster.turn(4)
    assert {cluster.run(run).status for run in runs} == {"scheduled"}
    before = cluster.engine.polls
    monkeypatch.setattr(engine_executor, "POLL_S", 60.0)
    monkeypatch.setattr(ScriptedEngine, "slowest_poll_s", 60.0)
    place = cluster.executor
    place.poll_s = 60.0
    cluster.turn(20, at_once=False)
    assert cluster.engine.polls <= before + 2


def test_an_engine_that_does_not_answer_is_asked_again(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.engine.fault = EngineUnavailable("the controller is down")
    cluster.turn()
    assert cluster.run(run).status == "scheduled"
    assert cluster.executor.trouble == "the controller is down"
    cluster.engine.fault = None
    cluster.turn()
    assert list(cluster.engine.jobs) == ["slurm:1"]
    cluster.engine.fault = EngineUnavailable("the controller is down")
    cluster.end(run, "finished")
    cluster.turn()
    assert cluster.run(run).status == "succeeded"  # the agent's word is enough


def test_what_the_engine_refuses_fails_with_its_words(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.engine.fault = JobRejected("Invalid account")
    cluster.turn()
    assert (cluster.run(run).status, cluster.run(run).reason) == ("failed", "slurm refused the job: Invalid account")


def test_an_engine_that_may_not_list_jobs_can_still_reject_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its submissions are idempotent, so no job has to be looked for first."""

    def forbidden(_: object) -> dict[str, Observation]:
        raise EngineUnavailable("jobs cannot be listed")

    monkeypatch.setattr(cluster.engine, "makes_room", True)
    monkeypatch.setattr(cluster.engine, "observe", forbidden)
    run = cluster.submit()
    cluster.engine.fault = JobRejected("jobs cannot be listed")
    cluster.turn()
    assert (cluster.run(run).status, cluster.run(run).reason) == (
        "failed",
        "slurm refused the job: jobs cannot be listed",
    )


def test_a_job_that_is_started_again_is_the_next_attempt(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1")
    cluster.agent(run)
    cluster.turn()
    cluster.became("slurm:1", WAITING, "because")
    cluster.turn(5)
    assert (cluster.run(run).status, cluster.run(run).attempt) == ("scheduled", 2)
    assert "a node failed" in [change.reason for change in cluster.works.store.statuses(run)]
    assert list(cluster.engine.jobs) == ["slurm:1"]
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1", attempt=2)
    cluster.end(run, "finished", attempt=2)
    cluster.turn()
    assert cluster.run(run).status == "succeeded"


def test_records_that_do_not_answer_block_no_other_run(cluster: Cluster) -> None:
    run, other = cluster.submit(), cluster.submit()
    cluster.turn()
    handle = cluster.handle(run)
    assert handle is not None
    cluster.became(handle, RUNNING)
    cluster.facts(run, handle)
    cluster.agent(run)
    cluster.turn()
    cluster.engine.records_answer.clear()
    cluster.became(handle, WAITING, "because")
    cluster.end(other, "finished")
    cluster.turn(5)
    assert cluster.run(other).status == "succeeded"
    assert (cluster.run(run).status, cluster.run(run).attempt) == ("running", 1)
    cluster.engine.records_answer.set()
    cluster.turn(5)
    assert (cluster.run(run).status, cluster.run(run).attempt) == ("scheduled", 2)
    assert "a node failed" in [change.reason for change in cluster.works.store.statuses(run)]


def test_what_the_nodes_do_before_a_run_starts_is_reported(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.turn()
    assert cluster.run(run).status == "starting"
    (cluster.works.run_folder(run).path / "job" / "attempt-1.progress").write_text("pip install tiny")
    cluster.turn()
    assert cluster.works.store.facts(run)["waiting"]["why"] == "slurm:1 prepares its nodes: pip install tiny"
    assert cluster.run(run).status == "building"
    assert cluster.run(run).reason.startswith("virtual environment on ")
    cluster.facts(run, "slurm:1")
    cluster.agent(run)
    cluster.turn()
    assert cluster.run(run).status == "running"
    assert cluster.works.store.facts(run).get("waiting") is None


def test_a_run_whose_image_is_built_is_building_then_waits_and_a_new_scheduler_sees_the_same(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    seen = cluster.engine.jobs["slurm:1"]
    cluster.engine.jobs["slurm:1"] = seen._replace(why="its image is being built", is_building=True)
    cluster.turn()
    assert (cluster.run(run).status, cluster.run(run).reason) == ("building", "its image is being built")
    cluster.scheduler = cluster.new_scheduler()
    cluster.turn()
    assert (cluster.run(run).status, cluster.engine.submissions) == ("building", 1)
    cluster.engine.jobs["slurm:1"] = seen
    cluster.turn()
    assert cluster.run(run).status == "scheduled"
    cluster.facts(run, "slurm:1")
    cluster.became("slurm:1", RUNNING)
    cluster.agent(run)
    cluster.turn()
    statuses = [change.status for change in cluster.works.store.statuses(run)]
    assert statuses == ["created", "scheduled", "building", "scheduled", "running"]


def test_a_build_that_fails_in_the_job_fails_the_run_with_its_reason(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    seen = cluster.engine.jobs["slurm:1"]
    cluster.engine.jobs["slurm:1"] = seen._replace(why="its image is being built", is_building=True)
    cluster.turn()
    cluster.became("slurm:1", ENDED, "its image could not be built: no space left", "setup")
    cluster.turn()
    assert (cluster.run(run).status, cluster.run(run).attempt) == ("failed", 1)
    assert "its image could not be built: no space left" in cluster.run(run).reason


def test_it_is_also_seen_when_no_one_looked_meanwhile(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    for attempt in (1, 2, 3):
        cluster.facts(run, "slurm:1", attempt)
        cluster.agent(run, attempt)
    cluster.scheduler = cluster.new_scheduler()
    cluster.turn(8)
    assert (cluster.run(run).status, cluster.run(run).attempt) == ("running", 3)


def test_a_failure_is_final_only_when_the_engine_says_so(cluster: Cluster) -> None:
    """A rank may fail of a lost node before anyone knows that the node is lost."""
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1")
    cluster.end(run, "error")
    cluster.turn()
    assert cluster.run(run).status == "running"
    cluster.became("slurm:1", ENDED, "the job failed")
    cluster.turn()
    assert cluster.run(run).status == "failed"
    assert cluster.run(run).reason.startswith("master-0: error")


@pytest.mark.parametrize(
    ("cause", "why", "status", "reason"),
    [
        ("stopped", "the job was cancelled by ana", "stopped", "the job was cancelled by ana"),
        ("timeout", "ended by the time limit of its job", "failed", "master-0: ended by the time limit of its job"),
        ("memory", "killed by Slurm for memory", "failed", "master-0: killed by Slurm for memory"),
        ("lost", "node2 failed", "failed", "master-0: node2 failed"),
    ],
)
@pytest.mark.parametrize("has_word", [True, False])
def test_agents_that_were_asked_to_end_do_not_know_why(  # noqa: PLR0917
    cluster: Cluster, cause: str, why: str, status: str, reason: str, has_word: bool
) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1")
    if has_word:
        cluster.end(run, "stopped")
    else:
        cluster.agent(run)
    cluster.turn()
    cluster.became("slurm:1", ENDED, why, cause)
    cluster.turn()
    assert cluster.run(run).status == status
    assert cluster.run(run).reason.startswith(reason)


@pytest.mark.parametrize(("code", "number"), [(137, None), (None, 9)])
def test_the_engine_knows_that_a_killed_command_ran_out_of_memory(
    cluster: Cluster, code: int | None, number: int | None
) -> None:
    """A command under a shell ends with an exit code."""
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1")
    cluster.end(run, "error", message="exit code 137", code=code, signal=number)
    cluster.turn()
    cluster.became("slurm:1", ENDED, "killed by Slurm for memory", "memory")
    cluster.turn()
    assert cluster.run(run).status == "failed"
    reason = "master-0: killed by Slurm for memory; request more memory: `environment.resources.memory`"
    assert cluster.run(run).reason.startswith(reason)


def test_the_time_that_a_scheduler_was_away_is_no_time_of_the_run(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    now = time.time()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1", began_at=now + 1)
    cluster.end(run, "finished", ended_at=now + 3)
    cluster.scheduler = cluster.new_scheduler(clock=lambda: now + 1000)
    cluster.became("slurm:1", ENDED, "finished", "finished")
    cluster.turn()
    done = cluster.run(run)
    assert done.status == "succeeded"
    assert done.started_at is not None
    assert done.finished_at is not None
    assert (done.finished_at - done.started_at).total_seconds() == pytest.approx(2, abs=0.01)


def test_a_job_that_its_engine_has_forgotten_has_ended(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.facts(run, "slurm:1")
    cluster.agent(run)
    cluster.engine.jobs.clear()
    cluster.turn()
    assert cluster.run(run).status in ("scheduled", "running")
    monkeypatch.setattr(engine_executor, "FORGOTTEN_S", 0.0)
    cluster.turn()
    assert cluster.run(run).status == "failed"
    assert "no longer knows job slurm:1" in cluster.run(run).reason


def test_what_the_script_of_a_job_complained_of_is_reported(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    (cluster.works.run_folder(run).path / "job" / "1.out").write_text("phalanx: this node has no modules\n")
    cluster.became("slurm:1", ENDED, "the job failed")
    cluster.turn()
    assert cluster.run(run).reason == "master-0: the job failed: this node has no modules"


def test_what_the_engine_wrote_beside_it_counts(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.facts(run, "slurm:1")
    cluster.agent(run)
    (cluster.works.run_folder(run).path / "job" / "1.out").write_text("oom\n")
    cluster.became("slurm:1", ENDED, "the job failed")
    cluster.turn()
    assert cluster.run(run).reason.startswith("master-0: killed for memory; request more memory")


def test_a_job_that_could_not_even_say_why_is_reported(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.became("slurm:1", ENDED, "the job failed")
    cluster.turn()
    assert "it could not write to" in cluster.run(run).reason


def test_a_run_that_waits_is_looked_at_soon_after_its_job_was_cancelled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cluster.submit()
    cluster.turn()
    monkeypatch.setattr(engine_executor, "WAITING_LOOK_S", 1000.0)
    monkeypatch.setattr(cluster.engine, "slowest_poll_s", 1000.0)
    cluster.turn()
    cluster.works.run_folder(run).ask_to_stop("stopped by its user")
    cluster.turn()
    assert cluster.engine.cancelled == ["slurm:1"]
    cluster.became("slurm:1", ENDED, "the job was cancelled by ana", "stopped")

    def is_stopped() -> bool:
        cluster.turn()
        return cluster.run(run).status == "stopped"

    wait_for(is_stopped)


def test_a_job_that_waits_is_asked_for_in_the_pass_after_it_was_cancelled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cluster.submit()
    cluster.turn()
    monkeypatch.setattr(engine_executor, "WAITING_LOOK_S", 1000.0)
    monkeypatch.setattr(cluster.engine, "slowest_poll_s", 1000.0)
    cluster.turn()
    assert cluster.scheduler.is_idle_here
    cluster.executor.poll_at = float("inf")
    cluster.works.run_folder(run).ask_to_stop("stopped by its user")
    cluster.turn(1, at_once=False)
    cluster.became("slurm:1", ENDED, "the job was cancelled by ana", "stopped")
    assert cluster.scheduler.has_acted  # the next pass follows at once
    cluster.turn(1, at_once=False)
    assert cluster.run(run).status == "stopped"


def test_a_request_to_stop_ends_the_pause_of_a_scheduler(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn(5)
    runner = SchedulerRunner(cluster.works.home, cluster.works.store)
    runner.scheduler, runner.took_s = cluster.scheduler, 1000.0
    assert runner.pause_s > 1000
    Timer(0.1, lambda: cluster.stop(run)).start()
    runner.pause()
    cluster.turn()
    assert cluster.engine.cancelled == ["slurm:1"]


def test_a_run_that_waits_is_stopped_by_cancelling_its_job(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.works.run_folder(run).ask_to_stop("enough")
    cluster.turn()
    assert cluster.engine.cancelled == ["slurm:1"]
    assert cluster.run(run).status == "scheduled"
    cluster.became("slurm:1", ENDED, "the job was cancelled", "stopped")
    cluster.turn()
    assert (cluster.run(run).status, cluster.run(run).reason) == ("stopped", "enough")


def test_the_next_segment_follows_in_the_same_job_or_in_another(cluster: Cluster) -> None:
    run = cluster.submit(b"slurm: {segment: 24h}")
    cluster.turn()
    cluster.became("slurm:1", RUNNING)
    cluster.facts(run, "slurm:1")
    cluster.end(run, "segment")
    cluster.turn()
    assert cluster.run(run).status == "running"  # its script is about to say whether it goes on
    cluster.became("slurm:1", ENDED, "the job failed")
    cluster.turn(4)
    assert (cluster.run(run).status, cluster.run(run).attempt) == ("scheduled", 2)
    assert list(cluster.engine.jobs) == ["slurm:1", "slurm:2"]


def test_a_failed_run_is_restarted_as_often_as_its_file_allows(cluster: Cluster) -> None:
    run = cluster.submit(b"max_restarts: 1")
    for attempt in (1, 2):
        cluster.turn(4)
        cluster.became(f"slurm:{attempt}", RUNNING)
        cluster.facts(run, f"slurm:{attempt}", attempt)
        cluster.end(run, "error", attempt)
        cluster.turn()
        cluster.became(f"slurm:{attempt}", ENDED, "the job failed")
        cluster.turn(4)
    assert cluster.run(run).status == "failed"
    assert list(cluster.engine.jobs) == ["slurm:1", "slurm:2"]


def test_jobs_that_wait_for_runs_that_are_over_are_cancelled(cluster: Cluster) -> None:
    over, other = cluster.submit(), cluster.submit()
    cluster.turn()
    handles = {seen.run_id: handle for handle, seen in cluster.engine.jobs.items()}
    cluster.end(over, "finished")
    cluster.turn()
    assert cluster.run(over).status == "succeeded"
    cluster.turn()
    assert cluster.engine.cancelled
    assert set(cluster.engine.cancelled) == {handles[over]}
    assert cluster.run(other).status == "scheduled"


def test_a_number_that_is_used_again_is_not_ours(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.turn()
    cluster.engine.jobs["slurm:1"] = Observation(ENDED, "finished", Cause.FINISHED, run_id="another")
    cluster.agent(run)
    cluster.turn()
    assert cluster.run(run).status in ("scheduled", "running")


def test_runs_elsewhere_do_not_wait_for_those_here(cluster: Cluster) -> None:
    works = cluster.works
    works.submit("sleep 100")
    works.submit("sleep 100", resources={"cpu": {"requests": 100_000}})
    run = cluster.submit()
    cluster.turn()
    assert list(cluster.engine.jobs) == ["slurm:1"]
    assert cluster.run(run).status == "scheduled"
