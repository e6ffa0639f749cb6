"""The test cluster is what it says, and breaks as it should."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.homes import wait_for
from tests.slurm.cluster import Cluster, ClusterError, Settings
from tests.slurm.configuration import ACCOUNT
from tests.slurm.places import SlurmPlace

HET = ("-N2", "-n2", "-c1", "--mem=100", ":", "-N1", "-n1", "-c2", "--mem=200", "--gpus-per-node=1")


def test_every_node_has_a_name_and_processes_of_its_own(cluster: Cluster) -> None:
    count = "echo $(hostname) $(ls -d /proc/[0-9]* | wc -l)"
    found = dict(line.split() for line in cluster.ask("srun", "-N4", "sh", "-c", count).splitlines())
    assert sorted(found) == cluster.nodes
    assert all(int(processes) < 30 for processes in found.values())


def test_nodes_reach_each_other_by_name(cluster: Cluster) -> None:
    listening = "import socket; s = socket.create_server((socket.gethostname(), 2345)); s.accept(); print('met')"
    calling = "import socket, time; time.sleep(1); socket.create_connection(('node1', 2345), 5)"
    both = f'[ $SLURM_PROCID = 0 ] && exec python3 -c "{listening}" || exec python3 -c "{calling}"'
    assert cluster.ask("srun", "-w", "node1,node2", "-N2", "sh", "-c", both) == "met"


def test_a_job_has_a_folder_on_each_of_its_nodes_and_nowhere_else(place: SlurmPlace) -> None:
    mark = "srun sh -c 'hostname >$SLURM_TMPDIR/mine'; srun sh -c 'cat $SLURM_TMPDIR/*; echo $SLURM_TMPDIR'"
    job = place.submit(mark, "-N2")
    place.until_job(job, "COMPLETED")
    words = place.output(job).split()
    assert sorted(word for word in words if word.startswith("node")) == ["node1", "node2"]
    (folder,) = {word for word in words if word.startswith("/")}
    here = [place.cluster.state / "local" / node / "scratch" / Path(folder).name for node in place.cluster.nodes]
    wait_for(lambda: not any(path.exists() for path in here))


@pytest.mark.smoke
def test_components_of_a_job_meet_in_one_step(place: SlurmPlace) -> None:
    job = place.submit("srun --het-group=0,1 sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $CUDA_VISIBLE_DEVICES'", *HET)
    place.until_job(job, "COMPLETED")
    assert sorted(place.output(job).splitlines()) == ["0/3", "1/3", "2/3 0"]


def test_a_power_cut_is_noticed_and_its_job_starts_again(place: SlurmPlace) -> None:
    body = """[ -n "$SLURM_RESTART_COUNT" ] || srun sh -c 'echo $SLURM_PROCID; sleep 300'"""
    job = place.submit(body, "-w", "node1,node2", "-N2", "--requeue")
    wait_for(lambda: set(place.output(job).split()) == {"0", "1"})  # a step that starts without a node fails the job
    place.cluster.power_cut("node2")
    assert place.cluster.alive()["node2"] is None
    place.until_job(job, "PENDING")
    place.cluster.boot("node2")
    place.until_job(job, "COMPLETED")
    place.until_accounted(job, "COMPLETED")
    assert place.accounted(job) == [["NODE_FAIL"], ["COMPLETED"]]


def test_behind_a_pulled_cable_life_goes_on(place: SlurmPlace) -> None:
    cluster = place.cluster
    if cluster.settings.isolation != "net":
        with pytest.raises(ClusterError, match="no cable"):
            cluster.partition("node2")
        return
    beat = place.folder / "beat"
    place.submit(f"while sleep 0.1; do date +%N >{beat}; done", "-w", "node2")
    wait_for(beat.exists)
    cluster.partition("node2")
    assert not can_connect(cluster, "node2")
    before = beat.read_text()
    wait_for(lambda: beat.read_text() != before)
    cluster.rejoin("node2")
    assert can_connect(cluster, "node2")


def can_connect(cluster: Cluster, node: str) -> bool:
    try:
        socket.create_connection((cluster.settings.address(node), cluster.settings.node_port(node)), 1.0).close()
    except OSError:
        return False
    return True


def test_without_a_controller_jobs_go_on_and_are_known_again(place: SlurmPlace) -> None:
    job = place.submit("sleep 12; echo through")
    place.until_job(job, "RUNNING")
    wait_for(lambda: is_saved(place.cluster))
    place.cluster.kill_controller()
    assert place.cluster.call("squeue").returncode != 0
    place.cluster.start_controller()
    place.until_job(job, "COMPLETED")
    assert place.output(job) == "through\n"


def is_saved(cluster: Cluster) -> bool:
    """The controller writes down what it knows every few seconds; a crash loses the rest."""
    newest = (cluster.state / "controller" / "job_state").stat().st_mtime_ns
    return wait_for(lambda: (cluster.state / "controller" / "job_state").stat().st_mtime_ns > newest) is True


def test_without_a_database_nothing_is_lost(place: SlurmPlace) -> None:
    place.cluster.kill_database()
    assert place.cluster.call("sacct").returncode != 0
    job = place.submit("exit 3")
    place.until_job(job, "FAILED")
    place.cluster.start_database()
    wait_for(lambda: place.accounted(job, "State,ExitCode,Account") == [["FAILED", "3:0", ACCOUNT]])  # comes in pieces


def test_what_goes_down_leaves_nothing(cluster: Cluster) -> None:
    small = Cluster.new(Settings(nodes=1, gpus=0, has_database=False, isolation=cluster.settings.isolation))
    small.up()
    small.ask("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 300")
    pids = [pid for pid in small.alive().values() if pid]
    assert len(pids) == 3
    small.down()
    small.down()
    assert not small.state.exists()
    assert not Path(f"/sys/class/net/{small.settings.bridge}").exists()
    assert all(state_of(pid) in "ZX" for pid in pids)
    assert cluster.ask("srun", "-N4", "hostname").count("node") == 4


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
