"""The fixture `works`: a home with its own scheduler, whose processes are gone after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.scheduler.working import Works


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
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
