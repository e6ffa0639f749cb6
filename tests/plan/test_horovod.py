"""Horovod: every rank by itself over Gloo, or all of them by mpirun."""

from __future__ import annotations

import pytest

from phalanx.plan import Plan
from tests.plan.samples import argv, distributed, environment, messages, planned


def with_launcher(launcher: str, command: str = "python train.py") -> Plan:
    return planned(f"""
        version: 1
        kind: experiment
        framework: horovod
        environment: {{replicas: {{n_workers: 3, launcher: {launcher}}}}}
        run: {{cmd: {command}}}
    """)


def test_ranks_meet_over_gloo_by_default() -> None:
    made = distributed("horovod", n_workers=3)
    assert made.launch == "each"
    for rank, found in enumerate(made.replicas):
        variables = environment(made, found.name)
        wanted = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "master-0.example",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": "2222",
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": "4",
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1",
            "HOROVOD_CROSS_RANK": str(rank),
            "HOROVOD_CROSS_SIZE": "4",
            "HOROVOD_HOSTNAME": found.name,
            "HOROVOD_GLOO_IFACE": "eth0",
        }
        assert {name: variables.get(name) for name in wanted} == wanted
        assert argv(made, found.name) == ["bash", "-c", "python train.py"]


def test_ranks_of_one_local_group_never_share_a_cross_rank() -> None:
    made = distributed("horovod", n_workers=4)
    replicas = {
        (variables["HOROVOD_LOCAL_RANK"], variables["HOROVOD_CROSS_RANK"])
        for variables in (environment(made, found.name) for found in made.replicas)
    }
    assert len(replicas) == 5


def test_mpirun_starts_all_ranks_where_the_file_asks_for_it() -> None:
    made = with_launcher("mpirun")
    assert made.launch == "mpirun"
    assert argv(made, "launcher-0") == [
        "mpirun", "-np", "4", "--hostfile", "/run/hostfile", "bash", "-c", "python train.py",
    ]  # fmt: skip
    assert [argv(made, found.name) for found in made.replicas[:4]] == [["bash", "-c", "python train.py"]] * 4


def test_under_mpirun_no_variable_of_gloo_gets_in_the_way() -> None:
    made = with_launcher("mpirun")
    for found in made.replicas:
        assert not [name for name in environment(made, found.name) if name.startswith("HOROVOD_")]


@pytest.mark.parametrize(
    "command", ["horovodrun -np 4 python train.py", "mpirun -np 4 python train.py", "/opt/bin/mpiexec -n 4 ./train"]
)
@pytest.mark.parametrize("launcher", ["", "mpirun"])
def test_a_command_that_starts_the_ranks_itself_runs_once(command: str, launcher: str) -> None:
    made = with_launcher(launcher, command) if launcher else distributed("horovod", n_workers=3, command=command)
    assert made.launch == "own"
    assert argv(made, "master-0") == ["bash", "-c", command]
    assert [found.argv for found in made.replicas[1:]] == [(), (), ()]
    assert any("starts the ranks itself" in message for message in messages(made))


def test_direct_is_what_happens_anyway() -> None:
    assert with_launcher("direct").launch == "each"
