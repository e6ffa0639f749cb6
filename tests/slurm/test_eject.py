"""A rendered job on its own: copied elsewhere and submitted by `sbatch`, by someone who has no Phalanx."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.slurm.debian import PATH
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import program as the

MEMORY = {"memory": {"limits": 200}}
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


class Ejected:
    """A job's folder, and a folder with the code, far from any home."""

    def __init__(self, place: SlurmPlace, command: str, **fields: Any) -> None:
        self.place = place
        rendered = place.folder / "rendered"
        answer = place.call("plan", "-f", place.file(command, **fields), "--on", "slurm", "-o", str(rendered))
        assert answer.code == 0, answer.err
        self.job_folder = place.folder.parent / "else where" / "my job"
        self.job_folder.parent.mkdir()
        shutil.copytree(rendered, self.job_folder)
        shutil.rmtree(rendered)
        self.code = place.folder.parent / "code"
        self.code.mkdir()

    def submit(self) -> str:
        """By hand, without anything of ours in the environment."""
        done = subprocess.run(
            ["sbatch", "--parsable", str(self.job_folder / "run.sh")],
            cwd=self.code,
            env={**self.place.cluster.environment, "PATH": PATH, "HOME": str(self.code)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def log(self, replica: str, attempt: int = 1) -> str:
        return (self.job_folder / "replicas" / replica / f"attempt-{attempt}" / "log").read_text()

    def rank_outputs(self) -> dict[str, Any]:
        return {path.stem: json.loads(path.read_text()) for path in self.job_folder.glob("outputs/*.json")}

    def said(self) -> str:
        """What the script itself said."""
        return "".join(path.read_text() for path in self.code.glob("slurm-*.out"))


def exit_code(place: SlurmPlace, job: str) -> str:
    place.until_accounted(job, *ENDED)
    return place.accounted(job, "ExitCode")[-1][0]


@pytest.mark.smoke
def test_an_ejected_job_runs_where_no_one_has_phalanx(place: SlurmPlace) -> None:
    assert shutil.which("phalanx", path=PATH) is None
    four = {
        "resources": MEMORY,
        "replicas": {"n_workers": 3, "default_worker": {"resources": MEMORY}},
        "slurm": {"replicas_per_node": 2},
    }
    ejected = Ejected(place, the("allreduce", 3), framework="pytorch", environment=four)
    job = ejected.submit()
    assert place.until_job(job, *ENDED) == "COMPLETED", ejected.said()
    ranks = ejected.rank_outputs()
    assert sorted(ranks) == ["0", "1", "2", "3"]
    assert all(rank["sums"] == [10, 20, 30] for rank in ranks.values())
    assert len({rank["host"] for rank in ranks.values()}) == 2
    assert {rank["environment"]["PWD"] for rank in ranks.values()} == {str(ejected.code)}
    assert ejected.log("worker-2").splitlines()[0] == "rank 3 at step 0: 10"
    assert list((ejected.job_folder / "replicas" / "worker-2" / "attempt-1").glob("*.points"))
    assert exit_code(place, job) == "0:0"
    assert not place.home.exists() or not list(place.home.glob("runs/*"))


@pytest.mark.smoke
def test_an_ejected_heterogeneous_job_gives_every_role_its_own(place: SlurmPlace) -> None:
    environment = {
        "resources": MEMORY,
        "replicas": {
            "n_workers": 2,
            "n_ps": 1,
            "default_worker": {"resources": {**MEMORY, "cpu": {"requests": 2}}},
            "default_ps": {"resources": {"memory": {"limits": 100}}},
        },
    }
    ejected = Ejected(place, the("topology"), framework="tensorflow", environment=environment)
    job = ejected.submit()
    assert place.until_job(job, *ENDED) == "COMPLETED", ejected.said()
    ranks = ejected.rank_outputs()
    names = ["master-0", "ps-0", "worker-0", "worker-1"]
    assert sorted(ranks) == names
    assert all(rank["answers"] == {name: name for name in names} for rank in ranks.values())
    wait_for(lambda: not place.cluster.ask("squeue", "-h", "-j", job))


def test_an_ejected_job_that_fails_says_so_by_its_exit_code(place: SlurmPlace) -> None:
    pair = {"resources": MEMORY, "replicas": {"n_workers": 1, "default_worker": {"resources": MEMORY}}}
    ejected = Ejected(place, the("faltering", 1), framework="pytorch", environment=pair)
    job = ejected.submit()
    assert place.until_job(job, *ENDED) == "FAILED"
    assert exit_code(place, job) == "1:0"
    assert "RuntimeError: the loss is not a number" in ejected.log("worker-0")
    found = ejected.job_folder.glob("replicas/*/*/end.json")
    ends = {path.parent.parent.name: json.loads(path.read_text()) for path in found}
    assert {name: end["cause"] for name, end in ends.items()} == {"master-0": "stopped", "worker-0": "error"}


def test_an_ejected_job_that_is_requeued_is_its_next_attempt(place: SlurmPlace) -> None:
    ejected = Ejected(place, the("steps", 8, 0.25, "--always", "--again"), environment={"resources": MEMORY})
    job = ejected.submit()
    state = ejected.job_folder / "outputs" / "state-0"
    wait_for(lambda: state.exists() and int(state.read_text()) > 2)
    place.cluster.ask("scontrol", "requeue", job)
    place.until_job(job, "PENDING")
    assert place.until_job(job, *ENDED) == "COMPLETED", ejected.said()
    assert "begins at step 0 in attempt 1" in ejected.log("master-0")
    assert "begins at step 0" not in ejected.log("master-0", 2)
    assert ejected.log("master-0", 2).splitlines()[-1] == "done"


def test_an_ejected_job_without_its_agent_says_what_is_missing(place: SlurmPlace) -> None:
    ejected = Ejected(place, "true", environment={"resources": MEMORY})
    (ejected.job_folder / "job" / "agent.pyz").unlink()
    job = ejected.submit()
    assert place.until_job(job, *ENDED) == "FAILED"
    assert "keep it beside run.sh" in ejected.said()
    assert not Path(ejected.code / "replicas").exists()
