"""Runs on a real cluster, by the user's door: every topology, and what each rank is told and given."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import ended, wait_for
from tests.cli.running import COMMAND
from tests.slurm.cluster import Cluster
from tests.slurm.configuration import ACCOUNT, GPU_TYPE, LIMITED_QOS
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import (
    HERE,
    AtOnce,
    folder,
    history,
    job_of,
    log,
    over,
    rank_outputs,
    replica,
    see,
    series,
    submit,
    succeeded,
)
from tests.slurm.programs import program as the

EASY = ["created", "scheduled", "running", "succeeded"]


def asking(cpus: int = 1, gpus: int = 0, memory_mib: int = 200) -> dict[str, Any]:
    asked: dict[str, Any] = {"cpu": {"requests": cpus}, "memory": {"limits": memory_mib}}
    return {"resources": {**asked, **({"gpu": {"limits": gpus}} if gpus else {})}}


def allocated(place: SlurmPlace, job: str, components: int = 1) -> dict[str, dict[str, str]]:
    """What Slurm gave each component, by its records, which come later: `{"12+1": {"cpu": "2", …}}`."""

    def complete() -> dict[str, dict[str, str]]:
        rows = place.rows("sacct", "-nXP", "-j", job, "-o", "JobID,AllocTRES")
        given = {row[0]: dict(pair.split("=") for pair in row[1].split(",")) for row in rows if row[1]}
        return given if len(given) == len(rows) == components else {}

    found: dict[str, dict[str, str]] = wait_for(complete)
    return found


# Each test of a topology says beside it what is to be run; all of that runs at the same time.
WANTED: dict[str, tuple[str, dict[str, Any]]] = {}


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[AtOnce]:
    place = SlurmPlace(tmp_path_factory.mktemp("at-once"), cluster)
    try:
        if shutil.which("mpicc") is not None:
            subprocess.run(["mpicc", "-o", place.folder / "reduce", HERE / "reduce.c"], check=True)
        yield AtOnce.of(place, WANTED)
    finally:
        place.close()


# alone ---------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_plain_job_runs_on_a_node_in_the_folder_of_its_code(place: SlurmPlace) -> None:
    answer = place.run('echo "$(hostname) in $PWD"; touch made; echo to stderr >&2; sleep 2', "--on", "slurm")
    assert answer.code == 0, answer.err
    (run,) = place.run_ids()
    found = see(place, run)
    host = replica(found, "master-0")["host"]
    assert host in place.cluster.nodes
    assert f"{host} in {place.folder}" in answer.out
    assert "to stderr" in answer.out
    assert (place.folder / "made").exists()
    assert [status for status in history(found) if status != "starting"] == EASY
    assert f"slurm:{job_of(place, run)}" in json.dumps(found), "whoever looks for its job finds the number"


WANTED |= {f"short-{number}": ("true", {}) for number in range(3)}


@pytest.mark.parametrize("number", range(3))
def test_the_shortest_run_has_begun(at_once: AtOnce, number: int) -> None:
    """It may be over before anyone has seen it run."""
    found = at_once.succeeded(f"short-{number}")
    assert found["created_at"] < str(found["started_at"]) <= found["finished_at"]


@pytest.mark.smoke
def test_the_exit_code_of_a_command_is_that_of_the_verb(place: SlurmPlace) -> None:
    answer = place.run("exit 3", "--on", "slurm", "--json")
    assert answer.code == 3, answer.err
    found = answer.data
    assert (found["status"], replica(found, "master-0")["code"]) == ("failed", 3)
    assert place.until_accounted(job_of(place, found["id"]), "FAILED", "COMPLETED") == "FAILED"


WANTED["asking"] = ("true", {"environment": {**asking(3, 2, 900), "slurm": {"gpu_type": GPU_TYPE}}})


def test_a_run_asks_for_what_its_file_says_and_no_more(at_once: AtOnce) -> None:
    found = at_once.succeeded("asking")
    (given,) = allocated(at_once.place, job_of(at_once.place, found["id"])).values()
    assert (given["cpu"], given["mem"], given["node"], given["gres/gpu"]) == ("3", "900M", "1", "2")


# topologies ----------------------------------------------------------------------------------------------------------


FOUR = {**asking(2), "replicas": {"n_workers": 3, "default_worker": asking(2)}, "slurm": {"replicas_per_node": 1}}
WANTED["pytorch"] = (the("allreduce", 3), {"framework": "pytorch", "environment": FOUR})


@pytest.mark.smoke
def test_ranks_of_pytorch_meet_over_four_nodes_and_agree(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("pytorch")
    ranks = rank_outputs(place, found["id"])
    assert sorted(ranks) == ["0", "1", "2", "3"]
    assert {rank["host"] for rank in ranks.values()} == set(place.cluster.nodes)
    assert all(rank["sums"] == [10, 20, 30] for rank in ranks.values())
    names = {"0": "master-0", "1": "worker-0", "2": "worker-1", "3": "worker-2"}
    for number, rank in ranks.items():
        environment = rank["environment"]
        assert (environment["RANK"], environment["WORLD_SIZE"]) == (number, "4")
        assert environment["PHALANX_REPLICA"] == names[number]
        assert environment["MASTER_ADDR"] == place.cluster.settings.address(ranks["0"]["host"])
        assert (environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"]) == ("0", "1")
        assert (environment["GROUP_RANK"], environment["GROUP_WORLD_SIZE"]) == (number, "4")
        assert replica(found, names[number])["host"] == rank["host"]


TENSORFLOW = {
    **asking(1, 1),
    "replicas": {
        "n_workers": 2,
        "n_ps": 2,
        "default_worker": asking(1),
        "worker": [{"index": 1, **asking(2, 2, 300)}],
        "default_ps": asking(1, memory_mib=100),
    },
}


WANTED["tensorflow"] = (the("topology"), {"framework": "tensorflow", "environment": TENSORFLOW})


@pytest.mark.smoke
def test_replicas_of_tensorflow_have_their_own_resources_in_one_job(at_once: AtOnce) -> None:
    """A master with a GPU, a worker like no other and servers that never end: they are one job, and it ends."""
    place, found = at_once.place, at_once.succeeded("tensorflow")
    ranks, job = rank_outputs(place, found["id"]), job_of(place, found["id"])
    names = ["master-0", "ps-0", "ps-1", "worker-0", "worker-1"]
    assert sorted(ranks) == names
    for name, rank in ranks.items():
        assert rank["answers"] == {other: other for other in names}, name
        config = json.loads(rank["environment"]["TF_CONFIG"])
        role, _, index = name.partition("-")
        assert config["task"] == {"type": "chief" if role == "master" else role, "index": int(index)}
        assert {key: len(places) for key, places in config["cluster"].items()} == {"chief": 1, "worker": 2, "ps": 2}
        assert config["cluster"][config["task"]["type"]][int(index)].partition(":")[
            0
        ] == place.cluster.settings.address(rank["host"])
        assert config["cluster"]["ps"] == json.loads(rank["environment"]["PHALANX_CLUSTER"])["ps"]
    cpus = {name: rank["environment"]["SLURM_CPUS_PER_TASK"] for name, rank in ranks.items()}
    assert cpus == {"master-0": "1", "ps-0": "1", "ps-1": "1", "worker-0": "1", "worker-1": "2"}
    gpus = {name: rank["environment"].get("CUDA_VISIBLE_DEVICES", "") for name, rank in ranks.items()}
    assert gpus == {"master-0": "0", "ps-0": "", "ps-1": "", "worker-0": "", "worker-1": "0,1"}
    given = sorted((tres["cpu"], tres["mem"], tres.get("gres/gpu", "0")) for tres in allocated(place, job, 4).values())
    assert given == [("1", "200M", "0"), ("1", "200M", "1"), ("2", "200M", "0"), ("2", "300M", "2")]
    assert {replica(found, name)["status"] for name in names} <= {"succeeded", "stopped"}
    place.until_accounted(job, "COMPLETED")


MXNET = {
    **asking(1),
    "replicas": {"n_workers": 2, "n_ps": 1, "default_worker": asking(2), "default_ps": asking(1, memory_mib=300)},
}
WANTED["mxnet"] = (the("topology"), {"framework": "mxnet", "environment": MXNET})


def test_replicas_of_mxnet_are_scheduler_servers_and_workers(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("mxnet")
    ranks = rank_outputs(place, found["id"])
    assert sorted(ranks) == ["master-0", "server-0", "worker-0", "worker-1"]
    said = {name: rank["environment"] for name, rank in ranks.items()}
    roles = {name: environment["DMLC_ROLE"] for name, environment in said.items()}
    assert roles == {"master-0": "scheduler", "server-0": "server", "worker-0": "worker", "worker-1": "worker"}
    for name, rank in ranks.items():
        assert rank["answers"] == {other: other for other in ranks}
        assert said[name]["DMLC_PS_ROOT_URI"] == place.cluster.settings.address(ranks["master-0"]["host"])
        assert (said[name]["DMLC_NUM_WORKER"], said[name]["DMLC_NUM_SERVER"]) == ("2", "1")
        assert said[name]["DMLC_NODE_HOST"] == place.cluster.settings.address(rank["host"])
    root = {f"{said[name]['DMLC_PS_ROOT_URI']}:{said[name]['DMLC_PS_ROOT_PORT']}" for name in ranks}
    assert root == {json.loads(said["master-0"]["PHALANX_CLUSTER"])["master"][0]}
    assert allocated(place, job_of(place, found["id"]), components=3)


SHARING = {
    **asking(1, 1),
    "replicas": {"n_workers": 3, "default_worker": asking(1, 1)},
    "slurm": {"replicas_per_node": 2},
}
WANTED["sharing"] = (the("topology"), {"framework": "pytorch", "environment": SHARING})


def test_several_replicas_share_a_node_and_its_gpus(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("sharing")
    ranks = rank_outputs(place, found["id"])
    assert sorted(Counter(rank["host"] for rank in ranks.values()).values()) == [2, 2]
    for host in {rank["host"] for rank in ranks.values()}:
        gpus = [rank["environment"]["CUDA_VISIBLE_DEVICES"] for rank in ranks.values() if rank["host"] == host]
        assert sorted(gpus) == ["0", "1"]
    assert all(rank["answers"] == {other: other for other in ranks} for rank in ranks.values())


PAIRS = {**asking(2, 2), "replicas": {"n_workers": 1, "default_worker": asking(2, 2), "processes": 2}}
WANTED["pairs"] = (the("allreduce", 2), {"framework": "pytorch", "environment": PAIRS})


def test_the_processes_of_a_replica_stay_on_one_node(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("pairs")
    ranks = rank_outputs(place, found["id"])
    assert [rank["sums"] for rank in ranks.values()] == [[10, 20]] * 4
    assert ranks["0"]["host"] == ranks["1"]["host"] != ranks["2"]["host"] == ranks["3"]["host"]
    said = [rank["environment"] for rank in ranks.values()]
    assert [environment["LOCAL_RANK"] for environment in said] == ["0", "1", "0", "1"]
    assert [environment["LOCAL_WORLD_SIZE"] for environment in said] == ["2"] * 4
    assert [environment["GROUP_RANK"] for environment in said] == ["0", "0", "1", "1"]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in said] == ["0,1"] * 4


MIXED = {
    **asking(1),
    "replicas": {"n_workers": 2, "default_worker": asking(1), "worker": [{"index": 1, **asking(2, 0, 600)}]},
    "slurm": {"layout": "homogeneous"},
}
WANTED["homogeneous"] = (the("allreduce", 1), {"framework": "pytorch", "environment": MIXED})


def test_a_homogeneous_layout_gives_everyone_what_the_largest_asks_for(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.succeeded("homogeneous")
    ranks = rank_outputs(place, found["id"])
    assert [rank["environment"]["SLURM_CPUS_PER_TASK"] for rank in ranks.values()] == ["2"] * 3
    (given,) = allocated(place, job_of(place, found["id"])).values()
    assert (given["cpu"], given["mem"]) == ("6", "1800M")


# MPI -----------------------------------------------------------------------------------------------------------------


NEEDS_MPI = pytest.mark.skipif(shutil.which("mpicc") is None, reason="no mpicc: Debian has it in libopenmpi-dev")
NEEDS_MPIRUN = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun: Debian has it in openmpi-bin")


def mpi(**slurm: Any) -> dict[str, Any]:
    environment = {
        "replicas": {"n_workers": 4, "default_worker": asking(1)},
        "slurm": {"replicas_per_node": 2, **slurm},
    }
    return {"framework": "mpi", "environment": environment}


def by_mpi(at_once: AtOnce, name: str) -> tuple[list[str], dict[str, Any]]:
    """What the ranks said, all of them, and the run."""
    found, place = at_once.succeeded(name), at_once.place
    logs = [log(place, found["id"], row["name"]) for row in found["replicas"] if row["role"] == "worker"]
    return sorted(line for text in logs for line in text.splitlines()), found


HET_MPI = {"replicas": {"n_workers": 3, "default_worker": asking(1), "worker": [{"index": 1, **asking(2)}]}}
if shutil.which("mpicc") is not None:
    WANTED |= {
        "mpi": ("./reduce", mpi()),
        "mpi-failing": ("./reduce 2", mpi()),
    }
    if shutil.which("mpirun") is not None:
        WANTED["mpirun"] = ("./reduce", mpi(mpi="mpirun"))


@NEEDS_MPI
def test_srun_starts_the_ranks_of_mpi(at_once: AtOnce) -> None:
    said, found = by_mpi(at_once, "mpi")
    assert said == [f"rank {n} of 4: sum 10, as worker-{n}" for n in range(4)]
    assert len({row["host"] for row in found["replicas"]}) == 2


@NEEDS_MPI
def test_srun_starts_the_ranks_of_mpi_in_several_components(at_once: AtOnce) -> None:
    """Alone, so that the nodes come in their order: where they do not, Slurm's PMIx mixes them up."""
    alone = AtOnce.of(at_once.place, {"mpi-het": ("./reduce", {"framework": "mpi", "environment": HET_MPI})})
    said, found = by_mpi(alone, "mpi-het")
    assert said == [f"rank {n} of 3: sum 6, as worker-{n}" for n in range(3)]
    assert allocated(at_once.place, job_of(at_once.place, found["id"]), components=3)


@NEEDS_MPI
@NEEDS_MPIRUN
def test_mpirun_starts_the_ranks_where_the_file_wants_it(at_once: AtOnce) -> None:
    said, _ = by_mpi(at_once, "mpirun")
    assert said == [f"rank {n} of 4: sum 10, as worker-{n}" for n in range(4)]


@NEEDS_MPI
def test_a_rank_of_mpi_that_fails_is_named(at_once: AtOnce) -> None:
    found = at_once.runs["mpi-failing"]
    assert found["status"] == "failed"
    assert found["reason"].startswith("worker-2: exit code 7"), found["reason"]


# what is seen of a run -----------------------------------------------------------------------------------------------


STEPS_SEEN = 36  # 18 s: the test looks several times meanwhile, also on a busy machine


@pytest.mark.smoke
def test_logs_and_metrics_of_every_rank_are_seen_while_it_runs_and_complete_at_its_end(place: SlurmPlace) -> None:
    environment = {**asking(1), "replicas": {"n_workers": 2, "default_worker": asking(1)}}
    run = submit(place, the("allreduce", STEPS_SEEN, 0.5), framework="pytorch", environment=environment)
    place.until(run, "running")

    def seen_of(rank: int) -> bool:
        return f"rank {rank} at step 1:" in place.call("logs", run, "--no-fold").out

    wait_for(lambda: all(map(seen_of, range(3))))
    wait_for(lambda: sorted(series(place, run, "total")) == ["master-0", "worker-0", "worker-1"])
    assert see(place, run)["status"] == "running"
    place.until(run, "succeeded")
    lines = place.call("logs", run, "--no-fold").out.splitlines()
    for rank in range(3):
        for step in range(STEPS_SEEN):
            assert sum(f"rank {rank} at step {step}: {6 * (step + 1)}" in line for line in lines) == 1
    points = series(place, run, "total")
    assert points == {name: [(1, step) for step in range(STEPS_SEEN)] for name in ("master-0", "worker-0", "worker-1")}


@pytest.mark.smoke
def test_why_a_job_waits_is_reported_in_words(place: SlurmPlace) -> None:
    """The job before it is somebody else's, and has all CPUs of all nodes."""
    other = place.submit("sleep 300", "-N4", "--ntasks-per-node=1", "-c4", "-t5")
    place.until_job(other, "RUNNING")
    run = submit(place, "true")
    held = submit(place, "true", environment={"slurm": {"directives": {"hold": ""}}})
    later = submit(place, "true", environment={"slurm": {"directives": {"begin": "now+1hour"}}})

    def words(which: str) -> str:
        return place.call("show", which).out

    wait_for(lambda: "waits for enough free nodes (Resources)" in words(run), 60)
    wait_for(lambda: "held by its user: `scontrol release` releases it (JobHeldUser)" in words(held), 60)
    wait_for(lambda: "its begin time has not been reached (BeginTime)" in words(later), 60)
    rows = {row["id"]: row for row in place.call("ps", "--json").data["runs"]}
    assert {rows[which]["status"] for which in (run, held, later)} == {"scheduled"}
    assert "(Resources)" in json.dumps(rows[run])
    listed = place.call("ps").out
    assert "held by its user" in listed
    assert f"slurm:{job_of(place, run)} waits" in words(run)
    attended = place.start("logs", "-f", run)
    place.cluster.ask("scancel", other)
    place.cluster.ask("scontrol", "release", job_of(place, held))
    place.call("stop", later)
    assert [found["status"] for found in over(place, run, held, later)] == ["succeeded", "succeeded", "stopped"]
    assert ended(attended).code == 0
    assert "waits for " not in words(run)


def test_a_run_may_be_submitted_from_within_a_job(place: SlurmPlace) -> None:
    """Whose variables are none of its own."""
    file = place.file(the("showing", 0), environment=asking(1))
    home = f"export PHALANX_HOME='{place.home}'"
    body = f"{home}\n{COMMAND} run -f {file} --on slurm --json"
    outer = place.submit(body, "-n3", "-c1", "--mem-per-cpu=300", f"--chdir={place.folder}")
    assert place.until_job(outer, "COMPLETED", "FAILED") == "COMPLETED", place.output(outer)
    found = json.loads(place.output(outer).splitlines()[-1])
    assert found["status"] == "succeeded"
    inner = job_of(place, found["id"])
    assert inner != outer
    (rank,) = rank_outputs(place, found["id"]).values()
    variables = rank["environment"]
    assert (variables["SLURM_JOB_ID"], variables["SLURM_NTASKS"], variables["PHALANX_RANK"]) == (inner, "1", "0")
    (given,) = allocated(place, inner).values()
    assert (given["cpu"], given["mem"]) == ("1", "200M")


RESUMED = f"{the('steps', 5, 0, '--always')} && [ $PHALANX_ATTEMPT = 2 ]"
WANTED["resumed"] = (RESUMED, {"environment": asking(1)})


@pytest.mark.smoke
def test_a_run_that_is_over_goes_on_when_it_is_resumed(at_once: AtOnce) -> None:
    place, found = at_once.place, at_once.runs["resumed"]
    assert found["status"] == "failed"
    answer = place.call("resume", found["id"], "--json")
    assert answer.code == 0, answer.err
    again = see(place, found["id"])
    assert (again["status"], again["attempt"]) == ("succeeded", 2)
    assert "begins at step 5 in attempt 2" in log(place, found["id"], attempt=2)
    assert job_of(place, found["id"], 2) != job_of(place, found["id"], 1)


def test_what_the_file_says_of_the_site_reaches_the_job(place: SlurmPlace) -> None:
    slurm = {
        "account": ACCOUNT,
        "partition": "short",
        "qos": LIMITED_QOS,
        "constraint": "rack2",
        "directives": {"nice": 7, "exclude": "node3", "mail-type": "END", "spread-job": ""},
    }
    found = succeeded(place, "sleep 1", environment={"timeout": "90s", "slurm": slurm})
    about = place.cluster.ask("scontrol", "show", "job", job_of(place, found["id"]))
    for word in (
        f"Account={ACCOUNT}",
        "Partition=short",
        f"QOS={LIMITED_QOS}",
        "Features=rack2",
        "Nice=7",
        "ExcNodeList=node3",
        "TimeLimit=00:02:00",
        "NodeList=node4",
        f"JobName=phalanx-{found['id']}",
        f"Comment=phalanx:{found['id']}:1",
    ):
        assert word in about.split(), f"{word} is not in\n{about}"


def test_directives_that_would_break_a_job_are_refused_before_anything_is_submitted(place: SlurmPlace) -> None:
    for directives in ({"wrap": "true"}, {"output": "/x"}, {"x y": "1"}, {"mail-user": "a b\n#SBATCH --hold"}):
        answer = place.run("true", "--on", "slurm", environment={"slurm": {"directives": directives}})
        assert answer.code == 1, answer
        assert "directives" in answer.err
    assert not place.cluster.ask("squeue", "-h")


HOSTILE = "a'b\"c $(touch pwned) `touch pwned` \n#SBATCH --hold\n; touch pwned #é漢 \\"


@pytest.fixture(name="odd")
def odd_fixture(tmp_path: Path, cluster: Cluster) -> Iterator[SlurmPlace]:
    """A home with spaces in its path, and code in a folder that no shell would like."""
    base = tmp_path / "with space é漢 %j"
    base.mkdir()
    place = SlurmPlace(base, cluster)
    place.folder = tmp_path / "w $(touch pwned) 'q' \"#SBATCH \\ %j ;touch pwned"
    place.folder.mkdir()
    yield place
    place.close()


@pytest.mark.smoke
def test_nothing_that_a_user_writes_is_run_or_breaks_anything(odd: SlurmPlace, tmp_path: Path) -> None:
    """Quotes, commands, lines and directives in paths, names, variables and params."""
    environment = {
        **asking(1),
        "env_vars": [["HOSTILE", HOSTILE], ["IFS", " \t;"], ["BASH_ENV", "/dev/fd/pwned"]],
        "replicas": {"n_workers": 1, "default_worker": asking(2)},
    }
    found = succeeded(
        odd,
        the("showing", 0) + " '{{ text }}'",
        "--name",
        "$(touch pwned) 'é漢 #SBATCH --hold",
        framework="pytorch",
        description=HOSTILE,
        tags=["$(touch pwned)", "#SBATCH"],
        params={"text": 'é漢 "$HOME #SBATCH --hold'},
        environment=environment,
    )
    ranks = rank_outputs(odd, found["id"])
    assert sorted(ranks) == ["master-0", "worker-0"]
    for rank in ranks.values():
        assert rank["environment"]["HOSTILE"] == HOSTILE
        assert rank["arguments"] == ['é漢 "$HOME #SBATCH --hold']
        assert Path(rank["working"]) == odd.folder
    assert found["description"] == HOSTILE
    script = (folder(odd, found["id"]) / "run.sh").read_text()
    assert "touch" not in script
    assert "--hold" not in script
    assert not list(tmp_path.rglob("pwned"))


def test_a_home_that_cannot_be_passed_on_is_reported(tmp_path: Path, cluster: Cluster) -> None:
    """Paths go into JSON and shells of the user's own: quotes would break them."""
    base = tmp_path / "it's"
    base.mkdir()
    place = SlurmPlace(base, cluster)
    try:
        answer = place.run("true", "--on", "slurm")
    finally:
        place.close()
    assert answer.code != 0
    assert "characters that cannot be passed to" in answer.err
