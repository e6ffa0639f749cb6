"""No framework: replicas find each other by our own variables alone."""

from __future__ import annotations

import json

from tests.plan.samples import distributed, environment

FOREIGN = ("DMLC_", "HOROVOD_", "JAX_", "MASTER_", "OMPI_", "RANK", "TF_", "TORCH", "WORLD_SIZE")


def test_replicas_have_our_variables_and_no_frameworks() -> None:
    made = distributed("plain", n_workers=2, n_ps=1)
    for found in made.replicas:
        variables = environment(made, found.name)
        assert variables["PHALANX_RANK"] == str(found.rank)
        assert not [name for name in variables if name.startswith(FOREIGN)]


def test_a_replica_finds_itself_in_the_cluster() -> None:
    made = distributed("plain", n_workers=2, n_ps=2)
    for found in made.replicas:
        variables = environment(made, found.name)
        cluster = json.loads(variables["PHALANX_CLUSTER"])
        mine = cluster[variables["PHALANX_ROLE"]][int(variables["PHALANX_INDEX"])]
        assert mine == f"{found.name}.example:2222"
