"""Horovod trains over Gloo and over MPI, logged by MLflow's client while a server is up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.running import COMMAND
from tests.frameworks.conftest import Staged
from tests.frameworks.stage import Stage, assert_continuous

ENVIRONMENT = "torch"
REPLICAS = ["master-0", "worker-0", "worker-1"]
NOISE = 0.01  # what is left of the loss when all is learned


@contextmanager
def served(example: Stage) -> Iterator[None]:
    """While the example's home has a server."""
    command = [COMMAND, "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, env=example.environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["url"]
        try:
            yield
            assert server.poll() is None, "the server ended before it was told to"
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("file", "model"),
    [
        pytest.param("polyaxonfile.yml", "horovod-example", marks=pytest.mark.smoke),
        ("mpirun.yml", "horovod-example"),
        ("mxnet.yml", "horovod-mxnet-example"),
    ],
)
def test_all_ranks_train_one_model(stage: Staged, file: str, model: str) -> None:
    example = stage("horovod", ENVIRONMENT)
    with served(example):
        run = example.trained(file)
    run.assert_agreed()
    assert sorted(run.weights()) == [0, 1, 2]
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)
    assert list(run.last("loss").values()) == pytest.approx([NOISE] * 3, abs=0.02)
    assert run.models() == [model]


@pytest.mark.parametrize("file", ["polyaxonfile.yml", "mxnet.yml"])
def test_one_process_ends_where_many_do(stage: Staged, file: str) -> None:
    example = stage("horovod", ENVIRONMENT)
    with served(example):
        alone = example.alone(file)
    assert alone.last("loss") == {"master-0": pytest.approx(NOISE, abs=0.02)}


@pytest.mark.parametrize("file", ["polyaxonfile.yml", "mxnet.yml"])
def test_it_resumes_from_its_checkpoint(stage: Staged, file: str) -> None:
    example = stage("horovod", ENVIRONMENT)
    with served(example):
        run = example.resumed(example.interrupted(file, pause=0.1))
    assert run.shown["attempt"] == 2
    run.assert_agreed()
    assert sorted(run.steps("loss")) == REPLICAS
    assert_continuous(run.steps("loss"), 40)


def test_the_topology_of_the_documents_trains_without_a_server(stage: Staged) -> None:
    run = stage("horovod", ENVIRONMENT).trained("document.yml")
    run.assert_agreed()
    assert len(run.weights()) == 8
    assert {replica["status"] for replica in run.shown["replicas"]} == {"succeeded"}
    assert not run.steps("loss")


def test_horovodrun_finds_the_hosts_by_itself(stage: Staged) -> None:
    run = stage("horovod", ENVIRONMENT).trained("elastic.yml", steps=5)
    assert sorted(run.weights()) == [0, 1]
    run.assert_agreed()
