"""Packed groups: their jobs are real processes of this machine, of an engine that a test scripts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from phalanx import run_paths
from phalanx.agent import processes
from phalanx.atomic_files import write_atomic
from phalanx.backends.contract import ENDED, RUNNING
from phalanx.home.group_folder import GroupFolder, allocation_id, trial_id
from phalanx.store import Run
from phalanx.submission.submit import submit
from tests.scheduler.scripted_engine import Cluster
from tests.submission.samples import submission_of

pytestmark = pytest.mark.slow  # each starts whole jobs
PATIENCE_S = 60.0
NO_FIELDS: dict[str, Any] = {}
LOG_X = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}})'"


def ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


class Packing:
    """A group on the cluster of a test, and the processes that are its jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.works = cluster, cluster.works
        self.jobs: list[list[subprocess.Popen[bytes]]] = []
        self.group = ""

    def begin(self, command: str, tuning: dict[str, Any], fields: dict[str, Any] = NO_FIELDS, **slurm: Any) -> str:
        content = {
            "version": 1,
            "kind": "group",
            "hptuning": {**tuning, "slurm": {"trials": "packed", **slurm}},
            "run": {"cmd": command},
            **fields,
        }
        asked = submission_of(content, folder=self.works.folder, environment=os.environ, on="slurm")
        self.group = submit(self.works.home, self.works.store, asked).id
        self.turn_until(lambda: "slurm:1" in self.cluster.engine.jobs)
        return self.group

    def start_job(self, handle: str = "slurm:1", attempt: int = 1, ends_in_s: float | None = None) -> None:
        """What the script of the job does on its nodes."""
        allocation = self.works.run_folder(allocation_id(self.group)).path
        nodes = len(json.loads((allocation / "plan.json").read_text())["replicas"])
        listed = [f"127.0.0.1:{port}" for port in ports(nodes)]
        facts = {
            "job": handle,
            "node": {f"master-{number}": f"n{number}" for number in range(nodes)},
            "ends_at": None if ends_in_s is None else time.time() + ends_in_s,
        }
        (allocation / "job").mkdir(exist_ok=True)
        write_atomic(allocation / run_paths.facts_file(attempt), json.dumps(facts).encode())
        self.cluster.became(handle, RUNNING)
        command = [sys.executable, "-m", "phalanx.scheduler.packed", str(self.works.home.path), self.group]
        shared = {**os.environ, "PHALANX_ATTEMPT": str(attempt), "PHALANX_CLUSTER": json.dumps({"master": listed})}
        self.jobs.append(
            [
                subprocess.Popen(command, env={**shared, "PHALANX_RANK": str(rank)}, start_new_session=True)
                for rank in range(nodes)
            ]
        )

    def end_job(self, handle: str = "slurm:1", attempt: int = 1, *, by: int | None = None) -> None:
        """Wait for it, or kill it with all its processes, as Slurm does."""
        for process in self.jobs[-1]:
            if by is not None:
                tree = [stat.pid for stat in processes.descendants(process.pid)]
                process.kill()
                processes.send(tree, signal.SIGKILL)
            process.wait(PATIENCE_S)
        if by is not None:
            for run_id in map(self.trial_id, range(len(self.records("create")))):
                processes.send(
                    processes.find_marked([("PHALANX_RUN_ID", run_id), ("PHALANX_AGENT_OF", run_id)]), signal.SIGKILL
                )
        allocation = self.works.run_folder(allocation_id(self.group)).path
        cause, code = ("finished", 0) if by is None else ("lost", None)
        for rank, process in enumerate(self.jobs[-1]):
            folder = allocation / run_paths.attempt_folder(f"master-{rank}", attempt)
            folder.mkdir(parents=True, exist_ok=True)
            if by is None and process.returncode:
                cause, code = "error", process.returncode
            end = {"version": 1, "cause": cause, "code": code, "message": "", "ended_at": time.time()}
            write_atomic(folder / run_paths.END, json.dumps({**end, "started_at": time.time()}).encode())
        self.cluster.became(handle, ENDED)

    def trial_id(self, number: int) -> str:
        return trial_id(self.group, number)

    def trial(self, number: int) -> Run:
        return self.works.store.find(self.trial_id(number))

    def facts(self, run: Run) -> dict[str, Any]:
        path = self.works.run_folder(run.id).path / run_paths.facts_file(run.attempt)
        return json.loads(path.read_text())  # type: ignore[no-any-return]

    def records(self, *what: str) -> list[dict[str, Any]]:
        found = GroupFolder(self.works.run_folder(self.group).path).records()
        return [record for record in found if not what or record["what"] in what]

    def turn_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (self.records() if self.group else "", self.cluster.scheduler.trouble)
            self.cluster.turn(1)
            time.sleep(0.02)

    def settle(self) -> Run:
        self.turn_until(lambda: self.works.store.find(self.group).is_done)
        return self.works.store.find(self.group)

    def close(self) -> None:
        for job in self.jobs:
            for process in job:
                tree = [stat.pid for stat in processes.descendants(process.pid)]
                processes.send(tree, signal.SIGKILL)
                with suppress(ProcessLookupError):
                    process.kill()
                process.wait(PATIENCE_S)


@pytest.fixture(name="packing")
def packing_fixture(cluster: Cluster) -> Iterator[Packing]:
    packing = Packing(cluster)
    yield packing
    packing.close()


def test_a_job_runs_the_trials_and_the_home_shows_them(packing: Packing) -> None:
    tuning = {"matrix": {"x": {"values": [3, 1, 2, 5]}}, "concurrency": 4, "metric": {"name": "loss"}}
    packing.begin(LOG_X, tuning, nodes=2)
    packing.start_job()
    packing.end_job()
    run = packing.settle()
    assert (run.status, run.backend) == ("succeeded", "slurm")
    found = [packing.trial(number) for number in range(4)]
    assert [(one.status, one.attempt, one.summary["loss"]) for one in found] == [
        ("succeeded", 1, value) for value in (3.0, 1.0, 2.0, 5.0)
    ]
    hosts = {packing.facts(one)["machine"] for one in found}
    assert hosts == {"n0", "n1"}
    packing.turn_until(lambda: packing.works.store.find(allocation_id(packing.group)).is_done)
    assert packing.works.store.facts(packing.group)["search"]["best"]["value"] == 5.0
    assert len(packing.cluster.engine.jobs) == 1


WAIT = "until [ -e go ]; do sleep 0.05; done"


def go(packing: Packing) -> None:
    (packing.works.folder / "go").touch()


def running(packing: Packing, *numbers: int) -> bool:
    """Whether the agents of these trials have started, by the files."""
    return all(
        any(packing.works.run_folder(packing.trial_id(number)).path.glob("replicas/*/attempt-1/agent.json"))
        for number in numbers
    )


def test_trials_run_on_when_the_scheduler_of_the_job_is_killed(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2]}}, "concurrency": 2})
    packing.start_job()
    packing.turn_until(lambda: running(packing, 0, 1))
    (scheduler,) = [stat.pid for stat in processes.descendants(packing.jobs[0][0].pid) if is_scheduler(stat.pid)]
    os.kill(scheduler, signal.SIGKILL)
    go(packing)
    packing.end_job()
    assert packing.settle().status == "succeeded"
    assert [(packing.trial(number).status, packing.trial(number).attempt) for number in (0, 1)] == [
        ("succeeded", 1)
    ] * 2


def is_scheduler(pid: int) -> bool:
    return b"--schedule" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_next_job_goes_on_after_one_was_lost(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2})
    packing.start_job()
    packing.turn_until(lambda: running(packing, 0, 1))
    packing.end_job(by=signal.SIGKILL)
    packing.turn_until(lambda: "slurm:2" in packing.cluster.engine.jobs)
    go(packing)
    packing.start_job("slurm:2", 2)
    packing.end_job("slurm:2", 2)
    run = packing.settle()
    assert run.status == "succeeded"
    found = [packing.trial(number) for number in range(3)]
    assert [(one.status, one.attempt) for one in found] == [("succeeded", 2), ("succeeded", 2), ("succeeded", 1)]
    assert len(packing.records("create")) == 3
    assert {record["trial"] for record in packing.records("retried")} == {0, 1}


def test_a_trial_that_the_end_of_the_job_cuts_resumes_in_the_next_without_a_failure(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1]}}})
    packing.start_job(ends_in_s=75.0)  # trials end a minute before that
    cut = packing.works.run_folder(packing.trial_id(0)).path
    packing.turn_until(lambda: any(cut.glob("replicas/*/attempt-1/end.json")))
    packing.turn_until(lambda: packing.trial(0).status == "resuming")
    packing.end_job(by=signal.SIGKILL)
    packing.turn_until(lambda: "slurm:2" in packing.cluster.engine.jobs)
    go(packing)
    packing.start_job("slurm:2", 2)
    packing.end_job("slurm:2", 2)
    assert packing.settle().status == "succeeded"
    assert packing.trial(0).attempt == 2
    assert packing.records("retried", "failed") == []


def test_a_group_is_stopped_in_its_job_and_before_it(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2})
    packing.start_job()
    packing.turn_until(lambda: running(packing, 0, 1))
    packing.works.run_folder(packing.group).ask_to_stop("enough")
    packing.end_job()
    run = packing.settle()
    assert (run.status, run.reason) == ("stopped", "enough")
    assert {packing.trial(number).status for number in (0, 1)} == {"stopped"}


def test_a_group_whose_job_still_waits_is_stopped(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2})
    packing.works.run_folder(packing.group).ask_to_stop("enough")
    packing.turn_until(lambda: packing.cluster.engine.cancelled)
    packing.cluster.became("slurm:1", ENDED, cause="stopped")
    run = packing.settle()
    assert (run.status, run.reason) == ("stopped", "enough")


def test_a_group_whose_job_was_killed_is_stopped_with_its_trials(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 2})
    packing.start_job()
    packing.turn_until(lambda: running(packing, 0, 1))
    packing.works.run_folder(packing.group).ask_to_stop("enough")
    packing.end_job(by=signal.SIGKILL)
    run = packing.settle()
    assert (run.status, run.reason) == ("stopped", "enough")
    assert {packing.trial(number).status for number in (0, 1)} == {"stopped"}


def test_jobs_that_fail_without_any_progress_pause_the_group(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2, 3]}}})
    for attempt in (1, 2):
        handle = f"slurm:{attempt}"
        packing.turn_until(lambda: handle in packing.cluster.engine.jobs)  # noqa: B023 - called at once
        packing.cluster.became(handle, ENDED, "the node was never there")
    packing.turn_until(lambda: packing.works.store.find(packing.group).status == "warning")
    assert "2 jobs of its allocation" in packing.works.store.find(packing.group).reason
    GroupFolder(packing.works.run_folder(packing.group).path).ask("continue")
    packing.turn_until(lambda: "slurm:3" in packing.cluster.engine.jobs)
    go(packing)
    packing.start_job("slurm:3", 3)
    packing.end_job("slurm:3", 3)
    assert packing.settle().status == "succeeded"


def test_requests_of_users_reach_the_job(packing: Packing) -> None:
    packing.begin(WAIT, {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 1})
    packing.start_job()
    packing.turn_until(lambda: running(packing, 0))
    GroupFolder(packing.works.run_folder(packing.group).path).ask("add", params={"x": 7})
    packing.turn_until(lambda: packing.records("added"))
    go(packing)
    packing.end_job()
    assert packing.settle().status == "succeeded"
    assert sorted(packing.trial(number).params["x"] for number in range(4)) == [1, 2, 3, 7]


def test_a_trial_of_several_replicas_runs_on_one_node(packing: Packing) -> None:
    tuning = {"matrix": {"x": {"values": [1, 2]}}, "concurrency": 2}
    fields = {"framework": "pytorch", "environment": {"replicas": {"n_workers": 1}}}
    packing.begin("echo $PHALANX_RANK of $PHALANX_WORLD_SIZE", tuning, fields, nodes=2)
    packing.start_job()
    packing.end_job()
    assert packing.settle().status == "succeeded"
    logs = [packing.works.log(packing.trial_id(0), name) for name in ("master-0", "worker-0")]
    assert logs == ["0 of 2\n", "1 of 2\n"]
    assert packing.facts(packing.trial(0))["machine"] != packing.facts(packing.trial(1))["machine"]


def test_repeats_of_a_trial_are_packed_with_their_seeds(packing: Packing) -> None:
    logged = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ x }}}} + {{{{ seed }}}})'"
    metric = {"name": "loss", "optimization": "minimize"}
    tuning = {"matrix": {"x": {"values": [5, 1]}}, "concurrency": 3, "repeat": 3, "metric": metric}
    packing.begin(logged, tuning, nodes=2)
    packing.start_job()
    packing.end_job()
    assert packing.settle().status == "succeeded"
    ends = {record["trial"]: record["value"] for record in packing.records("reported")}
    assert ends == {0: 6.0, 1: 2.0}
    runs = [trial_id(packing.group, 1, repeat) for repeat in range(3)]
    assert [packing.works.store.find(run).params["seed"] for run in runs] == [0, 1, 2]
    assert {packing.works.store.find(run).status for run in runs} == {"succeeded"}
