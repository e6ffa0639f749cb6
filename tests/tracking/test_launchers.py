"""A command that starts a launcher of its own: each of its processes has its own series."""

from __future__ import annotations

import shutil
import sys

import pytest

from phalanx.store import Store
from tests.cli.homes import Place, place_fixture  # noqa: F401 - the fixture

LOGS = """
import os
from phalanx import tracking
tracking.log(own=float(os.environ["OMPI_COMM_WORLD_RANK"]), step=0)
"""
LAUNCHER = """
import os, subprocess, sys
job = str(os.getpid())
started = [
    subprocess.Popen(sys.argv[1:], env={**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "PMIX_NAMESPACE": job})
    for rank in range(3)
]
sys.exit(max(process.wait() for process in started))
"""


def values(place: Place) -> dict[str, float]:
    """The value that each replica logged."""
    with Store.open(place.home) as store:
        (run,) = store.runs()
    found = place.call("metrics", run.id, "own", "--csv").out.splitlines()
    names = found[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in found[1:]]
    return {row["replica"]: float(row["value"]) for row in rows}


def test_each_process_of_a_launcher_has_its_own_series(place: Place) -> None:
    """In a run that is itself submitted from a task of such a launcher."""
    (place.folder / "log.py").write_text(LOGS)
    (place.folder / "launch.py").write_text(LAUNCHER)
    outer = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "1"}
    answer = place.call("run", "--", sys.executable, "launch.py", sys.executable, "log.py", stdin=b"", **outer)
    assert answer.code == 0, answer
    assert values(place) == {"master-0": 0.0, "master-0.1": 1.0, "master-0.2": 2.0}


def test_a_run_that_a_task_of_a_launcher_submits_is_not_that_task(place: Place) -> None:
    (place.folder / "log.py").write_text(LOGS)
    outer = {"OMPI_COMM_WORLD_RANK": "2", "SLURM_PROCID": "2", "RANK": "2", "LOCAL_RANK": "2"}
    answer = place.call("run", "--", sys.executable, "log.py", stdin=b"", **outer)
    assert answer.code == 0, answer
    assert values(place) == {"master-0": 2.0}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_each_process_of_mpirun_has_its_own_series(place: Place) -> None:
    (place.folder / "log.py").write_text(LOGS)
    as_root = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    line = ("mpirun", "--oversubscribe", "-n", "3", sys.executable, "log.py")
    answer = place.call("run", "--", *line, stdin=b"", **as_root)
    assert answer.code == 0, answer
    assert values(place) == {"master-0": 0.0, "master-0.1": 1.0, "master-0.2": 2.0}
