"""Real frameworks over the nodes of a real cluster: the examples, as their users submit them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from scripts.environments import built

from tests.frameworks.stage import Stage, Trained
from tests.slurm.cluster import Cluster

# The example, its environment, and how many of its replicas share a node (None: as Slurm likes).
CASES = [
    ("pytorch", "torch", 1),
    ("horovod", "torch", 1),
    ("jax", "tensorflow", 1),
    ("mxnet", "torch", 2),
    ("tensorflow", "tensorflow", None),
]


class SlurmStage(Stage):
    """The same, on a login node."""

    def __init__(self, base: Path, example: str, python: Path, cluster: Cluster) -> None:
        super().__init__(base, example, python)
        self.environment |= cluster.environment

    def run_spread(self, per_node: int | None) -> Trained:
        def spread(document: dict[str, Any]) -> None:
            environment = document["environment"]
            environment["slurm"] = {"replicas_per_node": per_node} if per_node is not None else {}
            if per_node is None:  # what the example asks for is more than these nodes have
                topology = environment["tensorflow"]
                for asked in (environment, topology["default_worker"], topology["default_ps"]):
                    asked["resources"]["memory"] = {"requests": 1500}

        answer = self.call("run", "--on", "slurm", "--json", "-f", self.changed("polyaxonfile.yml", spread))
        return Trained(self, str(answer.data["id"]))


@pytest.mark.parametrize(("example", "environment", "per_node"), CASES, ids=[case[0] for case in CASES])
def test_ranks_on_several_nodes_train_and_agree(
    example: str, environment: str, per_node: int | None, tmp_path: Path, cluster: Cluster
) -> None:
    python = built(environment)
    if python is None:
        reason = f"there is no environment `{environment}` here: `make frameworks FRAMEWORKS={environment}`"
        assert environment not in os.environ.get("PHALANX_NEVER_SKIP", "").split(","), reason
        pytest.skip(reason)
    stage = SlurmStage(tmp_path, example, python, cluster)
    try:
        run = stage.run_spread(per_node)
        assert run.status == "succeeded", run.report()
        hosts = [replica["host"] for replica in stage.call("show", run.id, "--json").data["replicas"]]
        assert len(set(hosts)) >= max(2, len(hosts) / (per_node or len(hosts))), hosts
        if example == "tensorflow":  # only the chief says what it ended with
            assert run.last("loss")["master-0"] < 1
        else:
            run.assert_agreed()
    finally:
        stage.close()
