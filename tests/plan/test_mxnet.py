"""MXNet: the master is the scheduler; workers and servers report to it."""

from __future__ import annotations

from tests.plan.samples import distributed, environment, messages


def test_all_replicas_know_the_scheduler_and_the_numbers() -> None:
    made = distributed("mxnet", n_workers=3, n_ps=2)
    for found in made.replicas:
        variables = environment(made, found.name)
        assert variables["DMLC_PS_ROOT_URI"] == "master-0.example"
        assert variables["DMLC_PS_ROOT_PORT"] == "2222"
        assert (variables["DMLC_NUM_WORKER"], variables["DMLC_NUM_SERVER"]) == ("3", "2")
        assert variables["DMLC_NODE_HOST"] == f"{found.name}.example"


def test_roles_are_named_as_mxnet_names_them() -> None:
    made = distributed("mxnet", n_workers=2, n_ps=1)
    roles = {found.name: environment(made, found.name)["DMLC_ROLE"] for found in made.replicas}
    assert roles == {"master-0": "scheduler", "worker-0": "worker", "worker-1": "worker", "server-0": "server"}


def test_workers_and_servers_have_their_ids() -> None:
    made = distributed("mxnet", n_workers=2, n_ps=2)
    worker, server, master = (environment(made, name) for name in ("worker-1", "server-1", "master-0"))
    assert (worker["DMLC_WORKER_ID"], worker["DMLC_SERVER_ID"]) == ("1", "0")
    assert server["DMLC_SERVER_ID"] == "1"
    assert "DMLC_WORKER_ID" not in server
    assert not {"DMLC_WORKER_ID", "DMLC_SERVER_ID"} & set(master)


def test_every_replica_runs_the_same_command() -> None:
    made = distributed("mxnet", n_workers=1, n_ps=1)
    assert {found.argv for found in made.replicas} == {("bash", "-c", "python train.py")}


def test_a_run_without_servers_says_that_it_needs_one() -> None:
    assert any("at least one server" in message for message in messages(distributed("mxnet", n_ps=0)))
    assert not any("at least one server" in message for message in messages(distributed("mxnet", n_ps=1)))
