"""JAX: the coordinator, and the numbers that `jax.distributed.initialize` must be given."""

from __future__ import annotations

from tests.plan.samples import distributed, environment


def test_every_process_finds_the_coordinator_and_its_number() -> None:
    made = distributed("jax", n_workers=3)
    for rank, found in enumerate(made.replicas):
        variables = environment(made, found.name)
        assert variables["JAX_COORDINATOR_ADDRESS"] == "master-0.example:2222"
        assert (variables["JAX_NUM_PROCESSES"], variables["JAX_PROCESS_ID"]) == ("4", str(rank))


def test_every_process_runs_the_command() -> None:
    made = distributed("jax", n_workers=2)
    assert {found.argv for found in made.replicas} == {("bash", "-c", "python train.py")}
