"""Groups whose trials are tasks of job arrays of a real cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from phalanx.home.group_folder import GroupFolder, trial_id
from tests.cli.homes import wait_for
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import folder, job_of, log, see, submit

SMALL = {"resources": {"cpu": {"requests": 1}, "memory": {"limits": 200}}}
UNTIL_GO = "until [ -e go-{{ x }} ] || [ -e go ]; do sleep 0.2; done"


def array(place: SlurmPlace, command: str, count: int, concurrency: int, **fields: Any) -> str:
    tuning = {"matrix": {"x": {"values": list(range(count))}}, "concurrency": concurrency, **fields}
    return submit(place, command, kind="group", hptuning=tuning, environment=SMALL)


def trials(place: SlurmPlace, group: str, status: str) -> list[str]:
    found = place.call("ps", "-q", f"group:{group}, status:{status}", "--json").data["runs"]
    return [run["id"] for run in found]


def reported(place: SlurmPlace, group: str) -> list[int]:
    records = GroupFolder(folder(place, group)).records()
    return sorted(record["trial"] for record in records if record["what"] == "reported")


def throttle(place: SlurmPlace, job: str) -> str:
    """As Slurm has it, of the tasks that wait."""
    shown = place.cluster.ask("scontrol", "-o", "show", "job", job)
    line = next(line for line in shown.splitlines() if "JobState=PENDING" in line)
    return next(word.partition("=")[2] for word in line.split() if word.startswith("ArrayTaskThrottle="))


@pytest.mark.smoke
def test_a_group_is_one_array_and_no_more_trials_run_than_its_concurrency(place: SlurmPlace) -> None:
    stamp = "echo {{ x }} begins $(date +%s.%N); sleep 1; echo {{ x }} ends $(date +%s.%N)"
    group = array(place, stamp, 7, 2)
    assert place.until(group, "succeeded", "failed", "warning") == "succeeded", see(place, group)["reason"]
    runs = [trial_id(group, number) for number in range(7)]
    jobs = {run: job_of(place, run) for run in runs}
    number = jobs[runs[0]].partition("_")[0]
    assert sorted(jobs.values()) == [f"{number}_{task}" for task in range(7)]
    lines = [line.split() for run in runs for line in log(place, run).splitlines()]
    changes = sorted((float(at), 1 if what == "begins" else -1) for _, what, at in lines)
    assert max(accumulate(change for _, change in changes)) == 2
    assert {see(place, run)["status"] for run in runs} == {"succeeded"}
    assert (folder(place, runs[3]) / "job" / f"slurm-{jobs[runs[3]]}.out").exists()


def test_an_array_is_changed_while_it_runs(place: SlurmPlace) -> None:
    group = array(place, UNTIL_GO, 12, 2)
    wait_for(lambda: len(trials(place, group, "running")) == 2, 120.0)
    number = job_of(place, trial_id(group, 0)).partition("_")[0]
    assert throttle(place, number) == "2"
    assert place.call("group", "set", group, "concurrency=4").code == 0
    wait_for(lambda: len(trials(place, group, "running")) == 4, 60.0)
    assert throttle(place, number) == "4"
    assert place.call("group", "pause", group).code == 0
    wait_for(lambda: "Held" in place.cluster.ask("squeue", "-h", "-t", "pending", "-j", number, "-o", "%r"), 60.0)
    running = trials(place, group, "running")
    (place.folder / "go-0").touch()
    wait_for(lambda: see(place, trial_id(group, 0))["status"] == "succeeded", 60.0)
    assert len(trials(place, group, "running")) == len(running) - 1
    assert place.call("group", "resume", group).code == 0
    wait_for(lambda: len(trials(place, group, "running")) == 4, 60.0)
    last, first = trial_id(group, 11), trial_id(group, 1)
    assert place.call("stop", last, first).code == 0
    assert {see(place, run)["status"] for run in (last, first)} == {"stopped"}
    place.cluster.ask("scancel", job_of(place, trial_id(group, 10)))  # by its user: it leaves no trace in Slurm
    assert place.until(trial_id(group, 10), "stopped", "failed", patience_s=60.0) == "stopped"
    assert place.call("stop", group).code == 0
    assert place.until(group, "stopped", "failed") == "stopped"
    wait_for(lambda: not place.cluster.ask("squeue", "-h", "-t", "pending,running", "-j", number), 60.0)
    assert reported(place, group) == [0]


def test_early_stopping_cancels_the_tasks_that_wait(place: SlurmPlace) -> None:
    command = "python3 -c 'from phalanx import tracking; tracking.log(loss=0.0)'"
    stopping = [{"metric": "loss", "value": 0.1, "optimization": "minimize"}]
    group = array(place, f"{command}; sleep 1", 30, 2, early_stopping=stopping)
    assert place.until(group, "succeeded", "failed", "stopped") == "succeeded"
    ends = [see(place, trial_id(group, number))["status"] for number in range(30)]
    assert ends.count("stopped") > 20


def test_tasks_survive_schedulers_requeues_and_lost_nodes(place: SlurmPlace) -> None:
    group = array(place, UNTIL_GO, 4, 4)
    wait_for(lambda: len(trials(place, group, "running")) == 4, 120.0)
    for pid in place.processes():  # the scheduler and whatever it started on this machine
        with suppress(ProcessLookupError, OSError):
            if b"phalanx.scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    for number in range(4):  # as if it had been killed before it wrote them
        path = folder(place, trial_id(group, number)) / "job" / "attempt-1.handle"
        path.write_text(json.dumps({**json.loads(path.read_text()), "handle": None}))
    requeued = trial_id(group, 1)
    before = place.cluster.ask("squeue", "-h", "-o", "%i|%k")
    place.cluster.ask("scontrol", "requeue", claimed(place, requeued))
    assert place.call("ps").code == 0  # starts another scheduler
    wait_for(lambda: see(place, requeued)["attempt"] == 2 and see(place, requeued)["status"] == "running", 120.0)
    node = json.loads((folder(place, trial_id(group, 2)) / "job" / "attempt-1.json").read_text())["node"]["master-0"]
    place.cluster.power_cut(node)
    wait_for(lambda: see(place, trial_id(group, 2))["attempt"] >= 2, 240.0)
    (place.folder / "go").touch()
    assert place.until(group, "succeeded", "failed", "warning", patience_s=240.0) == "succeeded", see(place, group)
    assert reported(place, group) == list(range(4))
    names = {
        row[0].partition("_")[0]
        for row in place.rows("sacct", "-nXP", "-o", "JobID,Comment%400")
        if f"array:{place.home}/" in row[1]  # other tests have used this cluster, too
    }
    assert 1 <= len(names) <= 2, (before, names)  # what was there was found: only the lost trial may be a new job


def claimed(place: SlurmPlace, run: str) -> str:
    found = json.loads((folder(place, run) / "job" / "attempt-1.claim.json").read_text())["job"]
    return str(found).partition(":")[2]


def test_hyperband_promotes_in_arrays_with_its_checkpoints(place: SlurmPlace) -> None:
    command = (
        "n=$(cat $PHALANX_OUTPUTS/n 2>/dev/null || echo 0); echo from $n to {{ epochs }}; echo {{ epochs }} "
        ">$PHALANX_OUTPUTS/n; python3 -c 'from phalanx import tracking; tracking.log(loss={{ lr }})'"
    )
    search = {"max_iter": 9, "eta": 3, "resource": {"name": "epochs", "type": "int"}, "resume": True}
    metric = {"name": "loss", "optimization": "minimize"}
    tuning = {
        "matrix": {"lr": {"uniform": "0:1"}},
        "concurrency": 6,
        "seed": 3,
        "hyperband": {**search, "metric": metric},
    }
    group = submit(place, command, kind="group", hptuning=tuning, environment=SMALL)
    assert place.until(group, "succeeded", "failed", "warning", patience_s=240.0) == "succeeded", see(place, group)
    records = GroupFolder(folder(place, group)).records()
    promoted = [record for record in records if record["what"] == "promote"]
    ends = [(record["trial"], record["rung"]) for record in records if record["what"] == "reported"]
    created = [record for record in records if record["what"] == "create"]
    assert len(ends) == len(set(ends)) == len(created) + len(promoted)
    best = max(promoted, key=lambda record: record["rung"])
    assert (
        f"from {best['resource'] // 3} to {best['resource']}" in place.call("logs", trial_id(group, best["trial"])).out
    )


def test_many_alike_runs_are_submitted_as_an_array(place: SlurmPlace) -> None:
    began = time.monotonic()
    answer = place.call(
        "run", "-f", place.file("echo $SLURM_ARRAY_TASK_ID", environment=SMALL), "--times", "25", "--on", "slurm"
    )
    assert answer.code == 0, answer.err
    runs = answer.out.split()
    for run in runs:
        assert place.until(run, "succeeded", "failed") == "succeeded", (time.monotonic() - began, see(place, run))
    arrays = {job_of(place, run).partition("_")[0] for run in runs}
    assert len(arrays) <= 3
    assert len({job_of(place, run) for run in runs}) == 25
