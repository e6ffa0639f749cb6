"""These tests run on a real Slurm, which they bring up: `make test-slurm`, or PHALANX_TEST_SLURM=1 with pytest.

Without that variable they are not collected. With it they are never skipped: a cluster that does not come up is an
error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, Settings, can_have_network
from tests.slurm.places import SlurmPlace


@pytest.fixture(name="cluster", scope="session")
def cluster_fixture() -> Iterator[Cluster]:
    """Four nodes of 4 CPUs, 4000 MiB and 2 GPUs that can do nothing, with accounts."""
    cluster = Cluster.new(Settings(isolation="net" if can_have_network() else "node"))
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(autouse=True)
def _whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test nobody's job is left, and all that was broken is whole."""
    yield
    if "cluster" in request.fixturenames:
        cluster: Cluster = request.getfixturevalue("cluster")
        cluster.up()
        cluster.cancel_all()


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path, cluster: Cluster) -> Iterator[SlurmPlace]:
    """A home on the cluster's login node."""
    place = SlurmPlace(tmp_path, cluster)
    yield place
    place.close()
