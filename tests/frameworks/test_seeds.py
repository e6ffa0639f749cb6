"""The files of Polyaxon's documents, as they are but for their command, train on this machine.

They are in the corpus that PHALANX_TEST_CORPUS names, not in the project; without it these tests are not collected.
"""

from __future__ import annotations

import pytest
import yaml

from tests.corpus.folder import corpus
from tests.frameworks.conftest import Staged

CASES = corpus() / "cases"

# TensorFlow's document gives its parameter servers 256 MiB: TensorFlow 1, for which it was written, fits in.
SEEDS = {
    "seed_000": ("mxnet", "torch", "python train.py --steps=5"),
    "seed_001": ("tensorflow1", "tensorflow1", "python train.py --steps=20"),
    "seed_002": ("pytorch", "torch", "python train.py --steps=5"),
    "seed_004": ("horovod", "torch", "python train.py --steps=5"),
}
TOPOLOGIES = {
    "mxnet": {"master": 1, "worker": 7, "server": 3},
    "tensorflow1": {"master": 1, "worker": 7, "ps": 3},
    "pytorch": {"master": 1, "worker": 7},
    "horovod": {"master": 1, "worker": 7},
}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed}-{SEEDS[seed][0]}")
@pytest.mark.parametrize("block", [0, 2])
def test_a_file_of_the_documents_trains(stage: Staged, seed: str, block: int) -> None:
    name, environment, command = SEEDS[seed]
    example = stage(name, environment)
    document = yaml.safe_load((CASES / f"{seed}_block{block}.yml").read_text())
    document["run"]["cmd"] = command
    (example.folder / "seed.yml").write_text(yaml.safe_dump(document))
    answer = example.call("run", "-f", "seed.yml", "--name", "seed")
    shown = example.call("show", "seed", "--json").data
    assert shown["status"] == "succeeded", answer.err[-6000:]
    assert "requests more than this machine has" in answer.err
    roles = [row["role"] for row in shown["replicas"]]
    assert {role: roles.count(role) for role in roles} == (TOPOLOGIES[name] if block == 2 else {"master": 1})
