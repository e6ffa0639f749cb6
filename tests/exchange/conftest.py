from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exchange.homes import Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    found = Target(tmp_path)
    yield found
    found.close()
