"""Fixtures that tests of several packages use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.exchange.homes import Target
    from tests.scheduler.working import Works


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
    """A home with its own scheduler, whose processes are gone after the test."""
    # Suites of other interpreters, which lack what Phalanx needs, load this plugin, too.
    from phalanx.backends.local import runner
    from tests.scheduler.working import Works

    found = Works(tmp_path)
    try:
        yield found
    finally:
        try:
            found.close()
        finally:
            for run_id in found.home.run_ids():
                runner.sweep(run_id)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """A home that runs are imported into."""
    from tests.exchange.homes import Target

    found = Target(tmp_path)
    yield found
    found.close()
