"""These tests run on a real Kubernetes API server: `make test-kubernetes`, or PHALANX_TEST_KUBERNETES=1 with pytest.

Without that variable they are not collected. With it they bring up a control plane of this machine's own, whose pods
are processes; where this machine does not permit that they say so loudly and are skipped, and with
PHALANX_NEVER_SKIP=kubernetes they fail. With PHALANX_TEST_KUBECONFIG they go to that cluster instead, each test in a
namespace of its own, and what only our own cluster lets us break is skipped.

Our own has two faces: what it is, a Kubernetes of 1.20 without Indexed Jobs, and a current one. Most tests see the
current one; those that are about an API server itself see the old one, and those that are about Jobs see both.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster, ClusterError, Settings, must_be_possible
from tests.kubernetes.places import KubernetesPlace
from tests.kubernetes.worlds import CURRENT, GIVEN, OLD, World

IS_OURS_USED = os.environ.get("PHALANX_TEST_CLUSTER")  # the state of one that is up already
NEVER_SKIP = "kubernetes" in os.environ.get("PHALANX_NEVER_SKIP", "").split(",")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faces(*versions): the Kubernetes that our own cluster shows to a test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "own" in metafunc.fixturenames and GIVEN is None:
        marker = metafunc.definition.get_closest_marker("faces")
        faces = marker.args if marker is not None else (CURRENT,)
        metafunc.parametrize("own", faces, indirect=True, scope="session")


@pytest.fixture(name="own", scope="session")
def own_fixture(request: pytest.FixtureRequest) -> Iterator[Cluster | None]:
    """Three nodes of 8 CPUs and 2 GPUs that can do nothing; None where another cluster is given."""
    if GIVEN is not None:
        yield None
        return
    if IS_OURS_USED:
        found = Cluster.found(Path(IS_OURS_USED))
        assert found is not None, f"there is no cluster in {IS_OURS_USED}"
        if (found.settings.version or OLD) != request.param:
            pytest.skip(f"that cluster shows Kubernetes {found.settings.version or OLD}")
        yield found
        found.api.close()
        return
    try:
        must_be_possible()
    except ClusterError as error:
        if NEVER_SKIP:
            raise
        warnings.warn(f"nothing of Kubernetes is tested here: {error}", stacklevel=1)
        pytest.skip(f"NOTHING OF KUBERNETES IS TESTED HERE: {error}")
    cluster = Cluster.new(Settings(version="" if request.param == OLD else request.param))
    try:
        cluster.up()
        yield cluster
    finally:
        if os.environ.get("PHALANX_TEST_KEEP") != "1":
            cluster.down()


@pytest.fixture(name="cluster")
def cluster_fixture(own: Cluster | None) -> Cluster:
    """For tests that break things."""
    if own is None:
        pytest.skip("only a cluster of our own is broken on purpose")
    return own


@pytest.fixture(name="world")
def world_fixture(own: Cluster | None) -> Iterator[World]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    world.make()
    yield world
    world.remove()


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path, world: World) -> Iterator[KubernetesPlace]:
    """A home whose runs go to the world's namespace, through a proxy that tests may tell to misbehave."""
    place = KubernetesPlace(tmp_path, world)
    yield place
    place.close()
