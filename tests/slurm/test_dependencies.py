"""Runs that wait for other runs in Slurm's own queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.slurm.places import PATIENCE_S, SlurmPlace
from tests.slurm.programs import folder, history, job_of, kill_schedulers, see, submit

SMALL = {"resources": {"cpu": {"requests": 1}, "memory": {"limits": 200}}}
MARK = "touch $PHALANX_OUTPUTS/ran"


def until(gate: str, end: str = "exit 0") -> str:
    return f"until [ -e {gate} ]; do sleep 0.1; done; {end}"


def follow(place: SlurmPlace, *after: str, command: str = MARK, **fields: Any) -> str:
    options = [word for one in after for word in ("--after", one)]
    return submit(place, command, *options, environment=SMALL, **fields)


def dependency(place: SlurmPlace, run: str) -> str:
    """What the job of a run waits for, as Slurm has it."""
    shown = place.cluster.ask("scontrol", "-o", "show", "job", job_of(place, run))
    return next(word.partition("=")[2] for word in shown.split() if word.startswith("Dependency="))


def has_run(place: SlurmPlace, run: str) -> bool:
    return (folder(place, run) / "outputs" / "ran").exists()


def waiting(place: SlurmPlace, run: str) -> str:
    return json.dumps(see(place, run))


def ended(place: SlurmPlace, *runs: str) -> list[str]:
    return [place.until(run, "succeeded", "failed", "stopped", "upstream_failed") for run in runs]


@pytest.mark.smoke
def test_a_chain_waits_in_slurm_and_starts_without_a_scheduler(place: SlurmPlace) -> None:
    first = submit(place, until("go"), environment=SMALL)
    second = follow(place, first)
    third = follow(place, f"{second}:done")
    assert dependency(place, second) == f"afterok:{job_of(place, first)}(unfulfilled)"
    assert dependency(place, third) == f"afterany:{job_of(place, second)}(unfulfilled)"
    wait_for(lambda: f"waits for run {first} to succeed; slurm:{job_of(place, second)} waits" in waiting(place, second))
    place.until(first, "running")
    assert kill_schedulers(place) >= 1
    (place.folder / "go").touch()
    wait_for(lambda: has_run(place, second) and has_run(place, third), PATIENCE_S)
    assert ended(place, first, second, third) == ["succeeded"] * 3
    assert [see(place, run)["attempt"] for run in (second, third)] == [1, 1]
    assert place.call("ps", "-q", "blocked:true", "--json").data["runs"] == []


def test_the_failure_of_the_first_ends_all_that_wait_for_its_success(place: SlurmPlace) -> None:
    first = submit(place, until("go", "exit 3"), environment=SMALL)
    second, last = follow(place, first), follow(place, f"{first}:done")
    third, rescue = follow(place, second), follow(place, f"{second}:failed")
    jobs = [job_of(place, run) for run in (second, third)]
    assert see(place, rescue)["status"] == "created"  # on our side: Slurm counts a cancelled job as failed
    (place.folder / "go").touch()
    assert ended(place, second, third, rescue, last) == ["upstream_failed"] * 2 + ["succeeded"] * 2
    assert f"run {first} ended as failed: master-0: exit code 3" in see(place, second)["reason"]
    assert f"run {second} ended as upstream_failed" in see(place, third)["reason"]
    for job in jobs:
        place.until_accounted(job, "CANCELLED")
    assert not has_run(place, second)
    (place.folder / "go").unlink()
    for run in (first, second):
        assert place.call("resume", run, "-d").code == 0
    wait_for(lambda: see(place, second)["attempt"] == 2)
    place.call("stop", second)
    place.call("stop", first)
    assert ended(place, first, second) == ["stopped", "stopped"]


def test_a_job_follows_the_attempts_of_the_run_that_it_waits_for(place: SlurmPlace) -> None:
    command = f'{until("go-$PHALANX_ATTEMPT")}; [ "$PHALANX_ATTEMPT" = 2 ]'.replace("exit 0; ", "")
    flaky = submit(place, command, environment={**SMALL, "max_restarts": 1})
    second, last = follow(place, flaky), follow(place, f"{flaky}:done")
    job = job_of(place, second)
    assert see(place, last)["status"] == "created"  # on our side: its next attempt would be another job
    (place.folder / "go-1").touch()
    retried = job_of(place, flaky, 2)
    wait_for(lambda: dependency(place, second) == f"afterok:{retried}(unfulfilled)", PATIENCE_S)
    (place.folder / "go-2").touch()
    assert ended(place, flaky, second, last) == ["succeeded"] * 3
    assert job_of(place, second) == job
    assert "upstream_failed" not in history(see(place, second))


def test_a_stopped_run_and_one_that_ran_out_of_time_do_not_start_what_waits_for_their_success(
    place: SlurmPlace,
) -> None:
    stopped, late = (submit(place, "sleep 300", environment=SMALL) for _ in range(2))
    after_stop, after_time = follow(place, stopped), follow(place, late)
    done, both = follow(place, f"{stopped}:done", f"{late}:done"), follow(place, stopped, f"{late}:done")
    for run in (stopped, late):
        place.until(run, "running")
    for run in (after_stop, after_time, done, both):
        job_of(place, run)
    place.call("stop", stopped)
    place.cluster.ask("scontrol", "update", f"jobid={job_of(place, late)}", "EndTime=now+1seconds")
    assert ended(place, stopped, late, after_stop, after_time, both, done) == [
        *("stopped", "failed"),
        *["upstream_failed"] * 3,
        "succeeded",
    ]
    assert not any(has_run(place, run) for run in (after_stop, after_time, both))


def test_a_waiting_job_is_stopped_at_once_and_what_slurm_thinks_of_an_end_does_not_count(place: SlurmPlace) -> None:
    first = submit(place, until("go"), environment=SMALL)
    second, third = follow(place, first), follow(place, first)
    jobs = [job_of(place, run) for run in (second, third)]
    other = place.submit("exit 1")
    place.until_job(other, "FAILED")
    place.cluster.ask("scontrol", "update", f"jobid={jobs[0]}", f"Dependency=afterok:{other}")  # never satisfied
    place.call("stop", third)
    assert place.until(third, "stopped") == "stopped"
    assert see(place, first)["status"] == "running"
    Path(place.folder / "go").touch()
    assert ended(place, first, second) == ["succeeded", "succeeded"]
