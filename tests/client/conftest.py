from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import Client
from tests.server.conftest import LEFT_BEHIND
from tests.server.site import Site

# A server in this process leaves the file of a client that went away to the garbage collector.
CUT_OFF = r"ignore:Exception ignored in. <_io\.FileIO:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings(LEFT_BEHIND))
            item.add_marker(pytest.mark.filterwarnings(CUT_OFF))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all tests of a file, each of which makes its own runs."""
    with Site(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with Client(site.url, site.token) as found:
        yield found
