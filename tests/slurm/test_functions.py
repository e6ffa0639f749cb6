"""Functions that are submitted from Python on the login node, and run on the nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.slurm.configuration import ACCOUNT
from tests.slurm.places import SlurmPlace

MODULE = """
import os, socket, time

def where():
    return int(os.environ["PHALANX_RANK"]), socket.gethostname()

def fail_in(rank):
    if where()[0] == rank:
        raise ValueError("no luck in rank %d" % rank)
    time.sleep(600)

def square(x):
    return x * x

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.1)
    return "came"
"""
START = f"""
import json, sys
import phalanx, remote
more = dict(on="slurm", cpus=1, memory=200, spec={{"environment": {{"slurm": {{"account": "{ACCOUNT}"}}}}}})
"""


def python(place: SlurmPlace, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A program on the login node."""
    (place.folder / "remote.py").write_text(MODULE)
    call = [sys.executable, "-c", START + code, *arguments]
    environment = place.environment(PYTHONPATH=str(place.folder))
    return subprocess.Popen(
        call, cwd=place.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answer(place: SlurmPlace, code: str, *arguments: str, timeout_s: float = 300) -> Any:
    with python(place, code, *arguments) as process:
        said, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0
    return json.loads(said.splitlines()[-1])


@pytest.mark.smoke
def test_the_exception_of_one_rank_of_four_arrives_with_its_traceback(place: SlurmPlace) -> None:
    found = answer(
        place,
        """
places = phalanx.submit(remote.where, workers=4, **more)
failed = phalanx.submit(remote.fail_in, 3, workers=4, **more)
try:
    failed.result(200)
except ValueError as fault:
    cause = fault.__cause__
    said = [str(fault), cause.replica, cause.rank, cause.host, str(cause)]
print(json.dumps([places.results(200), said]))
""",
    )
    assert [rank for rank, _ in found[0]] == [0, 1, 2, 3]
    fault, replica, rank, host, text = found[1]
    assert (fault, replica, rank) == ("no luck in rank 3", "worker-2", 3)
    assert host
    assert "in fail_in\n" in text


def test_after_kill_9_on_the_login_node_the_result_is_found(place: SlurmPlace, tmp_path: Path) -> None:
    code = "print(phalanx.submit(remote.wait_for, sys.argv[1], **more).id, flush=True)\nsys.stdin.read()\n"
    with python(place, code, str(tmp_path / "go")) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    place.until(run_id, "running")
    (tmp_path / "go").touch()
    assert answer(place, "print(json.dumps(phalanx.attach(sys.argv[1]).result(200)))", run_id) == "came"


def test_a_batch_is_an_array(place: SlurmPlace) -> None:
    code = "print(json.dumps(phalanx.map(remote.square, [(x,) for x in range(4)], concurrency=2, **more).results(300)))"
    assert answer(place, code) == [0, 1, 4, 9]
    jobs = wait_for(lambda: place.rows("sacct", "-nXP", "-o", "JobID,State"))
    assert any("_" in job for job, _ in jobs)


def test_code_for_submitit_runs_with_another_import(place: SlurmPlace) -> None:
    found = answer(
        place,
        f"""
import phalanx.submitit as submitit
def task(items):
    place = submitit.JobEnvironment()
    return items[place.global_rank], place.num_tasks, place.num_nodes, place.local_rank, place.cluster
executor = submitit.AutoExecutor(folder="log_test/%j")
executor.update_parameters(timeout_min=4, slurm_account="{ACCOUNT}", nodes=2, tasks_per_node=2, mem_gb=0.4)
print(json.dumps([executor.cluster, executor.submit(task, "abcd").result()]))
""",
    )
    assert found[0] == "slurm"
    assert [one[0] for one in found[1]] == ["a", "b", "c", "d"]
    assert [one[1:3] for one in found[1]] == [[4, 2]] * 4
    assert [one[3] for one in found[1]] == [0, 1, 0, 1]
    assert {one[4] for one in found[1]} == {"slurm"}


COUNTER = """
import os, time
from functools import partial

class Counter:
    def __init__(self):
        self.starts = 0

    def __call__(self, seconds):
        self.starts += 1
        if self.starts == 1:
            time.sleep(seconds)
        return self.starts, int(os.environ["PHALANX_ATTEMPT"])

    def checkpoint(self, seconds):
        return partial(self, seconds)
"""


def test_a_checkpoint_is_what_the_next_segment_runs(place: SlurmPlace) -> None:
    (place.folder / "counter.py").write_text(COUNTER)
    slurm = {"account": ACCOUNT, "segment": "2m", "checkpoint": 100}
    code = f"""
import counter
more["spec"] = {{"environment": {{"slurm": {slurm!r}}}}}
print(json.dumps(phalanx.submit(counter.Counter(), 600, timeout="1h", **more).result(400)))
"""
    assert answer(place, code, timeout_s=450) == [2, 2]
