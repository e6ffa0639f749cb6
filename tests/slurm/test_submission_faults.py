"""What becomes of a job when its scheduler, its controller or sbatch fail at the moment of its submission."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.homes import wait_for
from tests.slurm.debian import PATH
from tests.slurm.places import PATIENCE_S, SlurmPlace
from tests.slurm.programs import (
    ON_SLURM,
    folder,
    handle_of,
    in_front_of,
    job_of,
    jobs_named,
    kill_schedulers,
    over,
    schedulers,
    see,
    submit,
    submit_with,
    until_saved,
)

REAL_SBATCH = shutil.which("sbatch", path=PATH)
TIMES = "echo ran >>$PHALANX_OUTPUTS/times"


def times(place: SlurmPlace, run: str) -> str:
    path = folder(place, run) / "outputs" / "times"
    return path.read_text() if path.exists() else ""


def had_one_job(place: SlurmPlace, run: str) -> None:
    wait_for(lambda: jobs_named(place, run))  # Slurm's database gets them a moment later
    assert jobs_named(place, run) == [job_of(place, run)]


def has_run_once(place: SlurmPlace, run: str) -> None:
    """One job did the work; a second one, if there is one, had nothing to do."""
    found = see(place, run)
    assert (found["status"], found["attempt"]) == ("succeeded", 1), found["statuses"]
    assert times(place, run) == "ran\n"
    assert handle_of(place, run) is not None


def submitting(run: str) -> list[int]:
    """The processes that submit a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"--comment=phalanx:{run}:1".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def left(place: SlurmPlace, run: str) -> str:
    """The jobs of a run that have not ended."""
    return place.cluster.ask("squeue", "-h", "-n", f"phalanx-{run}", "-o", "%A %T")


@pytest.mark.smoke
def test_runs_whose_scheduler_was_killed_as_it_submitted_them_have_their_jobs(place: SlurmPlace) -> None:
    first = submit(place, "until [ -e go ]; do sleep 0.1; done")
    place.until(first, "running")
    for pid in schedulers(place):
        os.kill(pid, signal.SIGSTOP)
    file = place.file(f"{TIMES}; until [ -e go ]; do sleep 0.1; done")
    # So few are not submitted as an array
    runs = [place.call("run", "-f", file, "-d", *ON_SLURM).out.strip() for _ in range(9)]
    for pid in schedulers(place):
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.35)  # the moment, not a wait: about half of them are submitted then
    kill_schedulers(place)
    place.call("ps")
    stopped = runs[0]
    wait_for(lambda: all(handle_of(place, run) for run in runs), PATIENCE_S)
    job = job_of(place, stopped)
    assert place.call("stop", stopped).code == 0
    place.until(stopped, "stopped")
    wait_for(lambda: not left(place, stopped))
    assert place.until_accounted(job, "CANCELLED", "COMPLETED", "FAILED")
    (place.folder / "go").touch()
    over(place, first, *runs)
    for run in runs[1:]:
        has_run_once(place, run)
        had_one_job(place, run)


def test_a_run_that_is_stopped_while_the_controller_hangs_leaves_no_job(place: SlurmPlace) -> None:
    """The controller accepts the job when it goes on, long after its scheduler was killed."""
    other = submit(place, "until [ -e go ]; do sleep 0.1; done")
    place.until(other, "running")  # its scheduler knows the jobs of the cluster: it submits without asking again
    place.cluster.freeze_controller()
    try:
        # In one call: each call first asks the controller, for as long as an sbatch waits for its answer.
        runs = submit(place, "sleep 300", "--times", "2").split()
        wait_for(lambda: all(submitting(run) for run in runs))
        kill_schedulers(place)
        stops = [place.start("stop", run) for run in runs]
        wait_for(lambda: "has not ended" in json.dumps(see(place, runs[0])))
        for pid in submitting(runs[1]):  # its command is gone, too
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    finally:
        place.cluster.thaw_controller()
    found = over(place, *runs)
    assert [run["status"] for run in found] == ["stopped"] * 2, [run["reason"] for run in found]
    for run in runs:
        wait_for(lambda run=run: not left(place, run))  # type: ignore[misc]
    for stop in stops:
        assert stop.wait(60) == 0
    (place.folder / "go").touch()
    assert over(place, other)[0]["status"] == "succeeded"


def test_a_submission_that_takes_long_is_not_made_twice(place: SlurmPlace) -> None:
    mark = place.folder / "mark"
    slow = f'[ -e {mark} ] && exec {REAL_SBATCH} "$@"\ntouch {mark}; sleep 25'
    run = submit_with(place, TIMES, {"PATH": in_front_of(place, "sbatch", slow)})
    wait_for(mark.exists)
    assert kill_schedulers(place) >= 1
    wait_for(lambda: "has not ended; its scheduler was killed" in json.dumps(see(place, run)))
    over(place, run)
    has_run_once(place, run)
    had_one_job(place, run)


def test_a_stopped_run_whose_submission_returns_late_leaves_no_job(place: SlurmPlace) -> None:
    mark = place.folder / "mark"
    slow = f'touch {mark}; sleep 6; {REAL_SBATCH} "$@"; code=$?; sleep 6; exit $code'
    run = submit_with(place, "sleep 300", {"PATH": in_front_of(place, "sbatch", slow)})
    wait_for(mark.exists)
    assert kill_schedulers(place) >= 1
    assert place.call("stop", run).code == 0
    assert place.until(run, "stopped", "failed") == "stopped"
    wait_for(lambda: not left(place, run))
    had_one_job(place, run)


def test_a_second_job_of_an_attempt_does_nothing(place: SlurmPlace) -> None:
    run = submit(place, f"{TIMES}; until [ -e go ]; do sleep 0.1; done")
    place.until(run, "running")
    where = folder(place, run)
    words = ["--comment", f"phalanx:{run}:1", "-D", str(place.folder), "-o", f"{place.folder}/second.out"]
    second = place.cluster.ask("sbatch", "--parsable", *words, str(where / "run.sh"), str(where), "1", "1")
    assert place.until_job(second, "COMPLETED", "FAILED") == "COMPLETED"
    (place.folder / "go").touch()
    over(place, run)
    has_run_once(place, run)
    said = (place.folder / "second.out").read_text()
    assert said == f"nothing to do: attempt 1 belongs to slurm:{job_of(place, run)}\n"
    third = place.cluster.ask("sbatch", "--parsable", *words, str(where / "run.sh"), str(where), "2", "1")
    assert place.until_job(third, "COMPLETED", "FAILED") == "COMPLETED"
    assert (place.folder / "second.out").read_text().splitlines()[-1] == "nothing to do: the run is over (succeeded)"
    assert times(place, run) == "ran\n"


def test_a_controller_that_restarts_as_ranks_start_does_not_fail_the_run(place: SlurmPlace) -> None:
    at, go = place.folder / "at", place.folder / "go"
    held = f'[[ "$*" == *--join* ]] && touch {at} && until [ -e {go} ]; do sleep 0.1; done'
    run = submit_with(place, TIMES, {"PATH": in_front_of(place, "srun", held)})
    wait_for(at.exists)
    job = job_of(place, run)
    until_saved(place, job)
    place.cluster.kill_controller()
    go.touch()
    output = folder(place, run) / "job" / f"slurm-{job}.out"
    wait_for(lambda: "Unable to contact slurm controller" in output.read_text())
    place.cluster.start_controller()
    over(place, run)
    assert see(place, run)["status"] == "succeeded", output.read_text()
    has_run_once(place, run)
