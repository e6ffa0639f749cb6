"""PyTorch: what `env://` and code written for torchrun read."""

from __future__ import annotations

from tests.plan.samples import RUN_ID, distributed, environment


def test_every_rank_finds_the_master() -> None:
    made = distributed("pytorch", n_workers=3)
    for rank, found in enumerate(made.replicas):
        variables = environment(made, found.name)
        assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("master-0.example", "2222")
        assert (variables["RANK"], variables["WORLD_SIZE"]) == (str(rank), "4")


def test_the_master_is_rank_0_and_worker_i_is_rank_i_plus_1() -> None:
    made = distributed("pytorch", n_workers=2)
    ranks = {found.name: environment(made, found.name)["RANK"] for found in made.replicas}
    assert ranks == {"master-0": "0", "worker-0": "1", "worker-1": "2"}


def test_code_written_for_torchrun_finds_its_variables() -> None:
    made = distributed("pytorch", n_workers=2)
    variables = environment(made, "worker-1")
    wanted = {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_RANK": "2",
        "ROLE_WORLD_SIZE": "3",
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
    assert {name: variables.get(name) for name in wanted} == wanted


def test_rank_0_serves_the_store_because_no_agent_of_torchrun_does() -> None:
    assert environment(distributed("pytorch"), "master-0")["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_one_replica_alone_is_not_wired() -> None:
    variables = environment(distributed("pytorch", n_workers=0), "master-0")
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(variables)
