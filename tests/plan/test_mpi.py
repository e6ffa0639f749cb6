"""MPI: workers only; the first one starts all ranks."""

from __future__ import annotations

import pytest

from phalanx.plan.frameworks.mpi import LAUNCHERS
from tests.plan.samples import argv, distributed, environment, messages, planned


def test_a_launcher_starts_all_ranks() -> None:
    made = distributed("mpi", n_workers=3)
    assert made.launch == "mpirun"
    assert argv(made, "launcher-0") == [
        "mpirun", "-np", "3", "--hostfile", "/run/hostfile", "bash", "-c", "python train.py",
    ]  # fmt: skip
    assert made.launcher == made.replicas[-1].argv[:5]
    assert [argv(made, found.name) for found in made.replicas[:3]] == [["bash", "-c", "python train.py"]] * 3


def test_the_launcher_is_no_rank_and_asks_for_nothing() -> None:
    made = distributed("mpi", n_workers=3, more="resources: {cpu: {requests: 2}}\n")
    launcher = made.replicas[-1]
    assert (launcher.name, launcher.rank, dict(made.roles)) == ("launcher-0", 3, {"worker": 3})
    assert environment(made, "worker-0")["PHALANX_WORLD_SIZE"] == "3"
    assert launcher.resources.cpu is not None
    assert launcher.resources.cpu.requests == 0.0
    assert made.totals.cpu is None


def test_every_replica_knows_the_host_file() -> None:
    made = distributed("mpi", n_workers=2)
    for found in made.replicas:
        assert environment(made, found.name)["OMPI_MCA_orte_default_hostfile"] == "/run/hostfile"


def test_the_mpi_backend_is_wired_the_same_way() -> None:
    made = distributed("horovod", n_workers=3, top="backend: mpi\n")
    assert argv(made, "launcher-0")[:3] == ["mpirun", "-np", "3"]


def test_direct_starts_every_rank_by_itself() -> None:
    made = planned("""
        version: 1
        kind: experiment
        framework: mpi
        environment: {replicas: {n_workers: 3, launcher: direct}}
        run: {cmd: ./solve}
    """)
    assert made.launch == "each"
    assert {tuple(argv(made, found.name)) for found in made.replicas} == {("bash", "-c", "./solve")}


def test_a_command_that_starts_the_ranks_itself_is_left_alone() -> None:
    made = distributed("mpi", n_workers=3, command="mpirun -np 3 ./solve")
    assert made.launch == "own"
    assert argv(made, "worker-0") == ["bash", "-c", "mpirun -np 3 ./solve"]
    (note,) = [note for note in made.notes if "starts the ranks itself" in note.message]
    assert (note.path, note.place.line) == ("run.cmd", 9)
    assert len(messages(made)) == 1


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -np 4 ./solve",
        "mpiexec -n 4 ./solve",
        "mpiexec.hydra -n 4 ./solve",
        "orterun ./solve",
        "horovodrun -np 2 python t.py",
        "srun ./solve",
        "/usr/local/bin/mpirun ./solve",
        "OMP_NUM_THREADS=1 X= mpirun ./solve",
        "mpirun",
    ],
)
def test_launchers_are_known_by_name(command: str) -> None:
    assert LAUNCHERS.search(command)


@pytest.mark.parametrize(
    "command", ["python mpirun.py", "./solve --with mpirun", "mpirunner -np 4", "echo mpirun", "", "mpirun.sh -np 2"]
)
def test_other_commands_that_name_a_launcher_are_not_taken_for_one(command: str) -> None:
    assert not LAUNCHERS.search(command)


def test_a_launcher_after_other_commands_of_a_list_still_starts_the_ranks_itself() -> None:
    made = distributed("mpi", n_workers=3, command='["make solve", "mpirun -np 3 ./solve"]')
    assert made.command == "make solve && mpirun -np 3 ./solve"
    assert made.launch == "own"
    assert argv(made, "worker-0") == ["bash", "-c", "make solve && mpirun -np 3 ./solve"]
