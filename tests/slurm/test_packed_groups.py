"""Groups whose trials are packed into one allocation of a real cluster."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.home.group_folder import GroupFolder, allocation_id, trial_id
from tests.cli.homes import wait_for
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import folder, job_of, log, see, submit

TRAIN = """
import argparse, os, pathlib, time
from phalanx import tracking
asked = argparse.ArgumentParser()
asked.add_argument("--lr", type=float)
asked.add_argument("--epochs", type=int)
asked = asked.parse_args()
saved = pathlib.Path(os.environ["PHALANX_OUTPUTS"]) / "epoch"
first = int(saved.read_text()) if saved.exists() else 0
for epoch in range(first, asked.epochs):
    time.sleep(0.1)
    print("epoch", epoch, flush=True)
    tracking.log(loss=abs(asked.lr - 0.1) + 1 / (epoch + 1), step=epoch)
    saved.write_text(str(epoch + 1))
"""
RESOURCES = {"resources": {"cpu": {"requests": 1}, "memory": {"limits": 200}}}


def packed(place: SlurmPlace, command: str, tuning: dict[str, Any], **slurm: Any) -> str:
    """The id of a group on the cluster."""
    tuning = {**tuning, "slurm": {"trials": "packed", "time": "20m", **slurm}}
    return submit(place, command, kind="group", hptuning=tuning, environment=RESOURCES)


def records(place: SlurmPlace, group: str, *what: str) -> list[dict[str, Any]]:
    found = GroupFolder(folder(place, group)).records()
    return [record for record in found if not what or record["what"] in what]


@pytest.mark.smoke
def test_a_packed_group_runs_all_trials_in_one_job_of_two_nodes(place: SlurmPlace) -> None:
    tuning = {"matrix": {"x": {"values": list(range(8))}}, "concurrency": 4}
    group = packed(place, "echo {{ x }} on $(hostname); sleep 1", tuning, nodes=2)
    assert place.until(group, "succeeded", "failed", "warning") == "succeeded", see(place, group)["reason"]
    trials = [trial_id(group, number) for number in range(8)]
    said = [log(place, run).split() for run in trials]
    assert [words[0] for words in said] == [str(number) for number in range(8)]
    assert {words[2] for words in said} <= set(place.cluster.nodes)
    assert len({words[2] for words in said}) == 2
    assert {see(place, run)["status"] for run in trials} == {"succeeded"}
    assert place.until(allocation_id(group), "succeeded", "failed") == "succeeded"
    place.until_accounted(job_of(place, allocation_id(group)), "COMPLETED")
    jobs = place.rows("sacct", "-nXP", "-o", "JobID,JobName")
    mine = [row for row in jobs if group in row[1] or allocation_id(group) in row[1] or row[1].split("-")[-1] in trials]
    assert [row[0] for row in mine] == [job_of(place, allocation_id(group))]


def test_hyperband_resumes_its_trials_after_kills_and_requeues(place: SlurmPlace) -> None:
    (place.folder / "train.py").write_text(TRAIN)
    search = {"max_iter": 27, "eta": 3, "resource": {"name": "epochs", "type": "int"}, "resume": True}
    tuning = {
        "matrix": {"lr": {"uniform": "0:1"}},
        "concurrency": 6,
        "seed": 7,
        "hyperband": {**search, "metric": {"name": "loss", "optimization": "minimize"}},
    }
    group = packed(place, f"{sys.executable} train.py --lr={{{{ lr }}}} --epochs={{{{ epochs }}}}", tuning, nodes=2)
    allocation = allocation_id(group)
    wait_for(lambda: len(records(place, group, "reported")) >= 8, 180.0)
    (pid,) = schedulers(place)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(records(place, group, "reported")) >= 16, 180.0)
    place.cluster.ask("scontrol", "requeue", job_of(place, allocation))
    assert place.until(group, "succeeded", "failed", "warning", patience_s=400.0) == "succeeded", see(place, group)
    created = records(place, group, "create")
    assert [record["trial"] for record in created] == list(range(len(created)))
    promoted = records(place, group, "promote")
    assert len({(record["trial"], record["rung"]) for record in promoted}) == len(promoted)
    ends = records(place, group, "reported")
    assert len({(record["trial"], record["rung"]) for record in ends}) == len(ends) == len(created) + len(promoted)
    assert records(place, group, "failed") == []
    for record in created:
        assert_continuous(place, trial_id(group, record["trial"]))
    assert len(list(folder(place, allocation).glob("job/attempt-*.claim.json"))) == 2


def schedulers(place: SlurmPlace) -> list[int]:
    """The processes that schedule inside of jobs."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in place.processes()}
    return [pid for pid, words in lines.items() if b"--schedule" in words]


def assert_continuous(place: SlurmPlace, run: str) -> None:
    """Every attempt went on where its checkpoint was: no epoch is skipped, and at most the cut one was repeated."""
    said = sorted(
        folder(place, run).glob("replicas/master-0/attempt-*/log"), key=lambda path: int(path.parent.name[8:])
    )
    epochs = [
        int(line.split()[1]) for path in said for line in path.read_text().splitlines() if line.startswith("epoch")
    ]
    assert sorted(set(epochs)) == list(range(max(epochs) + 1))
    assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(epochs)), epochs
    kept = json.loads((folder(place, run) / "run.json").read_text())
    assert max(epochs) + 1 == kept["params"]["epochs"]


def test_a_packed_group_is_stopped_in_its_job(place: SlurmPlace) -> None:
    group = packed(place, "sleep 600", {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2})
    wait_for(lambda: place.call("ps", "-q", f"group:{group}, status:running", "--json").data["runs"][1:], 120.0)
    assert place.call("stop", group).code == 0
    assert place.until(group, "stopped", "failed") == "stopped"
    place.until(allocation_id(group), "succeeded", "stopped", "failed")
    job = job_of(place, allocation_id(group))
    assert place.until_job(job, "COMPLETED", "CANCELLED")


def test_a_cancelled_job_pauses_its_group_which_goes_on_when_resumed(place: SlurmPlace) -> None:
    command = "until [ -e go ]; do sleep 0.1; done"
    group = packed(place, command, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2})
    wait_for(lambda: place.call("ps", "-q", f"group:{group}, status:running", "--json").data["runs"][1:], 120.0)
    place.cluster.ask("scancel", job_of(place, allocation_id(group)))
    assert place.until(group, "warning", "failed") == "warning"
    assert "its job was stopped" in see(place, group)["reason"]
    (place.folder / "go").touch()
    assert place.call("group", "resume", group).code == 0
    assert place.until(group, "succeeded", "failed", "stopped") == "succeeded"
    assert {see(place, trial_id(group, number))["status"] for number in range(3)} == {"succeeded"}
    assert len(records(place, group, "reported")) == 3


def test_a_packed_group_goes_on_without_a_node_that_was_lost(place: SlurmPlace) -> None:
    command = "until [ -e go ]; do sleep 0.1; done"
    group = packed(place, command, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2}, nodes=2)
    wait_for(lambda: place.call("ps", "-q", f"group:{group}, status:running", "--json").data["runs"][1:], 120.0)
    facts = json.loads((folder(place, allocation_id(group)) / "job" / "attempt-1.json").read_text())
    place.cluster.power_cut(facts["node"]["master-1"])
    wait_for((folder(place, allocation_id(group)) / "job" / "attempt-2.json").exists, 240.0)
    (place.folder / "go").touch()
    assert place.until(group, "succeeded", "failed", "stopped", "warning", patience_s=180.0) == "succeeded"
    assert sorted(record["trial"] for record in records(place, group, "reported")) == [0, 1, 2]
    assert {see(place, trial_id(group, number))["status"] for number in range(3)} == {"succeeded"}


def test_the_search_goes_on_in_the_next_job_when_the_time_of_one_is_over(place: SlurmPlace) -> None:
    (place.folder / "train.py").write_text(TRAIN.replace("time.sleep(0.1)", "time.sleep(1)"))
    tuning = {
        "matrix": {"lr": {"values": [0.1, 0.3]}},
        "concurrency": 4,
        "repeat": 2,
        "metric": {"name": "loss", "optimization": "minimize"},
        "slurm": {"trials": "packed", "time": "20m"},
    }
    environment = {**RESOURCES, "slurm": {"directives": {"hold": ""}}}
    command = f"{sys.executable} train.py --lr={{{{ lr }}}} --epochs=100"
    group = submit(place, command, kind="group", hptuning=tuning, environment=environment)
    allocation = allocation_id(group)
    job = job_of(place, allocation)
    place.cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=2")  # trials end after one of them
    place.cluster.ask("scontrol", "release", job)
    wait_for((folder(place, allocation) / "job" / "attempt-2.json").exists, 240.0)
    assert place.until(group, "succeeded", "failed", "stopped", "warning", patience_s=480.0) == "succeeded"
    runs = [trial_id(group, number, repeat) for number in range(2) for repeat in range(2)]
    for run in runs:
        ends = sorted(folder(place, run).glob("replicas/*/attempt-*/end.json"))
        causes = [json.loads(path.read_text())["cause"] for path in ends]
        assert causes == ["segment"] * (len(causes) - 1) + ["finished"]
        assert see(place, run)["attempt"] == len(causes) >= 2
    assert records(place, group, "failed", "retried") == []
    assert sorted(record["trial"] for record in records(place, group, "reported")) == [0, 1]
