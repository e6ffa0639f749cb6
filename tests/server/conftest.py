from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.server.auth import accounts
from tests.server.site import Site

LEFT_BEHIND = "ignore:subprocess .* is still running:ResourceWarning"  # the scheduler does not wait for its settlers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings(LEFT_BEHIND))


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Passwords cost a tenth of a second each, and tests have many. The real cost has a test of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "COST", 2**8)
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all tests of a file, each of which makes its own runs."""
    with Site(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """For tests that count what there is, or break something."""
    with Site(tmp_path) as found:
        yield found
