"""Replicas with several GPUs have a process for each, where the framework is used to it."""

from __future__ import annotations

import pytest

from phalanx.errors import SpecErrors
from phalanx.plan import Plan
from tests.plan.samples import distributed, environment, messages, planned


def with_gpus(
    framework: str, master: int = 2, workers: int = 4, *, command: str = "python t.py", more: str = ""
) -> Plan:
    return planned(f"""
        version: 1
        kind: experiment
        framework: {framework}
        environment:
          resources: {{cpu: {{requests: 8}}, memory: {{requests: 1024, limits: 2048}}, gpu: {{requests: 2}}}}
          replicas:
            n_workers: 2
            {more}
            default_worker: {{resources: {{gpu: {{requests: 4}}}}}}
            worker: [{{index: 1, resources: {{gpu: {{requests: 0}}}}}}]
        run: {{cmd: {command}}}
    """)


NAMES = ["master-0", "master-0.1", "worker-0", "worker-0.1", "worker-0.2", "worker-0.3", "worker-1"]


@pytest.mark.parametrize("framework", ["pytorch", "deepspeed", "horovod", "jax"])
def test_one_for_each_gpu_and_at_least_one(framework: str) -> None:
    made = with_gpus(framework)
    assert [found.name for found in made.replicas] == NAMES
    assert [found.rank for found in made.replicas] == list(range(7))
    assert dict(made.roles) == {"master": 1, "worker": 2}
    assert any("one process per GPU" in message for message in messages(made))
    assert environment(made, "worker-0.2")["PHALANX_REPLICA"] == "worker-0.2"
    assert environment(made, "worker-0.2")["PHALANX_LOCAL_RANK"] == "2"
    assert environment(made, "worker-0.2")["PHALANX_WORLD_SIZE"] == "7"


def test_pytorch_gets_the_variables_of_torchrun() -> None:
    made = with_gpus("pytorch")
    variables = environment(made, "worker-0.3")
    wanted = {
        "RANK": "5", "WORLD_SIZE": "7", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "3", "NODE_RANK": "1", "ROLE_RANK": "5", "MASTER_ADDR": "master-0.example",
    }  # fmt: skip
    assert {name: variables[name] for name in wanted} == wanted
    assert not [name for name in variables if name.startswith("PET_")]


def test_horovod_counts_across_the_replicas_that_have_such_a_process() -> None:
    made = with_gpus("horovod")
    replicas = {
        found.name: tuple(
            environment(made, found.name)[f"HOROVOD_{part}"]
            for part in ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
        )
        for found in made.replicas
    }
    assert replicas["master-0.1"] == ("1", "1", "2", "0", "2", "master-0")
    assert replicas["worker-0"] == ("2", "0", "4", "1", "3", "worker-0")
    assert replicas["worker-0.1"] == ("3", "1", "4", "1", "2", "worker-0")
    assert replicas["worker-0.3"] == ("5", "3", "4", "0", "1", "worker-0")
    assert replicas["worker-1"] == ("6", "0", "1", "2", "3", "worker-1")
    assert made.service == {
        "global": 7, "cross_0": 3, "cross_1": 2, "cross_2": 1, "cross_3": 1,
        "local_master-0": 2, "local_worker-0": 4, "local_worker-1": 1,
    }  # fmt: skip


def test_what_a_replica_asks_for_is_counted_once() -> None:
    made = with_gpus("pytorch")
    second = made.replicas[1]
    assert made.totals.gpu is not None
    assert made.totals.memory is not None
    assert (made.totals.gpu.requests, made.totals.memory.limits) == (6.0, 2048.0)
    assert second.resources.gpu is None
    assert second.resources.memory is not None
    assert (second.resources.memory.requests, second.resources.memory.limits) == (0.0, 2048.0)
    assert environment(made, "master-0.1")["OMP_NUM_THREADS"] == "4"


def test_the_file_may_say_how_many() -> None:
    assert len(with_gpus("pytorch", more="processes: 1").replicas) == 3
    made = with_gpus("pytorch", more="processes: 2")
    assert [found.name for found in made.replicas][-2:] == ["worker-1", "worker-1.1"]
    assert not [message for message in messages(made) if "one process per GPU" in message]


def test_one_replica_may_have_several_too() -> None:
    made = planned("""
        version: 1
        kind: experiment
        framework: pytorch
        environment: {replicas: {processes: 3}}
        run: {cmd: python t.py}
    """)
    assert [found.name for found in made.replicas] == ["master-0", "master-0.1", "master-0.2"]
    assert environment(made, "master-0.2")["WORLD_SIZE"] == "3"


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py",
        "python -m torch.distributed.run train.py",
        "python3 -u -m torch.distributed.launch train.py",
        "accelerate launch train.py",
        "cd code && torchrun train.py",
        "deepspeed train.py",
    ],
)
def test_a_command_that_starts_the_processes_itself_gets_advice(command: str) -> None:
    made = with_gpus("pytorch", command=command)
    assert [found.name for found in made.replicas] == ["master-0", "worker-0", "worker-1"]
    variables = environment(made, "worker-0")
    assert (variables["PET_NNODES"], variables["PET_NODE_RANK"], variables["PET_NPROC_PER_NODE"]) == ("3", "1", "4")
    assert (variables["PET_MASTER_ADDR"], variables["PET_MASTER_PORT"]) == ("master-0.example", "2222")
    assert environment(made, "worker-1")["PET_NPROC_PER_NODE"] == "1"


@pytest.mark.parametrize("framework", ["tensorflow", "mxnet", "plain", "xgboost"])
def test_the_others_have_one_process_in_each_replica(framework: str) -> None:
    assert len(with_gpus(framework).replicas) == 3
    with pytest.raises(SpecErrors, match=f"a replica of {framework} is one process"):
        with_gpus(framework, more="processes: 2")


def test_a_single_replica_is_left_as_it_was() -> None:
    made = planned("""
        version: 1
        kind: experiment
        framework: pytorch
        environment: {resources: {gpu: {requests: 4}}}
        run: {cmd: python t.py}
    """)
    assert len(made.replicas) == 1
    assert "RANK" not in environment(made, "master-0")


def test_who_is_met_before_the_start() -> None:
    assert distributed("pytorch").meets == ("master-0",)
    assert distributed("tensorflow", n_ps=1).meets == ("master", "worker", "ps")
    assert distributed("mpi").meets == ()
    assert planned("version: 1\nkind: experiment\nrun: {cmd: x}\n").meets == ()


def test_more_processes_than_a_plan_can_have_are_an_error_of_the_file() -> None:
    with pytest.raises(SpecErrors) as caught:
        planned("""
            version: 1
            kind: experiment
            framework: pytorch
            environment:
              replicas: {n_workers: 3, default_worker: {resources: {gpu: 100001}}}
            run: {cmd: python t.py}
        """)
    (error,) = caught.value.errors
    assert error.message == "with one process per GPU these replicas have more than 100000 processes"
    assert error.suggestion == "write `processes: 1`, or fewer GPUs"
