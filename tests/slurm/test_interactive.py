"""Shells, holds and notebooks in jobs of a real cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.homes import wait_for
from tests.notebook.environment import with_jupyter
from tests.slurm.cluster import Cluster
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import ON_SLURM, job_of, see, submit

TWO = {"framework": "pytorch", "environment": {"replicas": {"n_workers": 1}, "env_vars": [["MY_SECRET", "s3cret"]]}}
SAY = 'echo "$MY_SECRET $RANK $(hostname) $PWD"; exit 9'


def entered(place: SlurmPlace, run: str, rank: int, *words: str) -> tuple[int, str]:
    answer = place.call("exec", run, "--rank", str(rank), "--", *words)
    return answer.code, answer.out


@pytest.fixture(name="near")
def near_fixture(cluster: Cluster) -> Iterator[SlurmPlace]:
    """A home whose path leaves room for that of a socket."""
    with TemporaryDirectory() as base:
        place = SlurmPlace(Path(base), cluster)
        yield place
        place.close()


@pytest.mark.smoke
def test_a_command_runs_in_the_job_on_the_node_of_its_replica_and_a_failed_job_is_held(place: SlurmPlace) -> None:
    run = submit(place, "sleep 5; [ $RANK = 1 ] && exit 4; sleep 300", "--hold", "10m", **TWO)
    wait_for(lambda: entered(place, run, 1, "true")[0] == 0)
    hosts = {row["rank"]: row["host"] for row in see(place, run)["replicas"]}
    for rank in (0, 1):
        assert entered(place, run, rank, "sh", "-c", SAY) == (9, f"s3cret {rank} {hosts[rank]} {place.folder}\n")
    reason = wait_for(lambda: found if (found := see(place, run)["reason"]).startswith("held until") else "")
    assert "worker-0: exit code 4" in reason
    for rank in (0, 1):  # the processes have ended, the environment is there
        wait_for(lambda: entered(place, run, rank, "true")[0] == 0)  # noqa: B023 - called at once
        assert entered(place, run, rank, "sh", "-c", SAY)[1].startswith(f"s3cret {rank} {hosts[rank]}")
    assert place.job_state(job_of(place, run)) == "RUNNING"
    assert place.call("stop", run).code == 0
    found = see(place, run)
    assert (found["status"], found["reason"]) == ("failed", "worker-0: exit code 4")
    place.until_job(job_of(place, run), "CANCELLED", "FAILED", "")


def test_a_hold_ends_by_itself_and_the_run_has_failed(place: SlurmPlace) -> None:
    answer = place.run("exit 3", *ON_SLURM, "--hold", "2s")
    assert (answer.code, "held until" in answer.err) == (3, True)
    (run,) = place.run_ids()
    assert see(place, run)["reason"] == "master-0: exit code 3"


def test_a_replica_of_another_component_is_entered(place: SlurmPlace) -> None:
    """In a heterogeneous job each component is a job of its own."""
    sizes = {"n_workers": 1, "default_worker": {"resources": {"cpu": {"requests": 2}}}}
    run = submit(place, "sleep 300", framework="pytorch", environment={"replicas": sizes})
    wait_for(lambda: entered(place, run, 1, "true")[0] == 0)
    assert entered(place, run, 1, "sh", "-c", "echo $RANK; nproc") == (0, "1\n2\n")
    place.call("stop", run)


@pytest.mark.smoke
def test_a_notebook_answers_on_a_socket_of_its_node_and_prints_the_line_to_reach_it(near: SlurmPlace) -> None:
    place = near
    path = with_jupyter(place.environment()["PATH"])
    answer = place.call("notebook", *ON_SLURM, "--json", PATH=path, USER="ada")
    assert answer.code == 0, answer.err
    found = answer.data
    run, node = found["id"], see(place, found["id"])["replicas"][0]["host"]
    (step,) = found["tunnel"]
    assert step["command"].startswith("ssh -N -J ada@")
    assert step["command"].endswith(f"/.notebook/socket ada@{node}")
    url = urlsplit(found["url"])
    (token,) = parse_qs(url.query)["token"]
    listening = Path(step["command"].split("8888:")[1].split()[0])
    assert (listening.stat().st_mode & 0o777, listening.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (asked(listening), asked(listening, token)) == (403, 200)
    back, line = place.call("notebook", "--url", run, "--reverse", "--json", PATH=path, USER="ada").data["tunnel"]
    assert back["command"].startswith(f"phalanx exec {run} --replica master-0 -- ssh -N ")
    assert line["command"].startswith("ssh -N -L 8888:")
    assert token not in place.call("logs", run).out
    assert place.call("stop", run).code == 0
    assert see(place, run)["status"] == "stopped"
    assert not listening.exists()


def asked(path: Path, token: str = "") -> int:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(f"GET /api/contents HTTP/1.1\r\nHost: localhost\r\nAuthorization: token {token}\r\n\r\n".encode())
        return int(line.recv(100).split()[1])


def test_without_jupyter_nothing_is_queued(place: SlurmPlace) -> None:
    names = [Path(one) for one in place.environment()["PATH"].split(":")]
    path = ":".join(str(one) for one in names if not (one / "jupyter-lab").exists())
    answer = place.call("notebook", *ON_SLURM, PATH=path)
    assert (answer.code, "pip install jupyterlab" in answer.err) == (2, True)
    assert not place.run_ids()
