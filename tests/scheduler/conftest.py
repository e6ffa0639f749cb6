from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.backends.local import runner
from tests.scheduler.working import Works


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
    found = Works(tmp_path)
    try:
        yield found
    finally:
        try:
            found.close()
        finally:
            for run_id in found.home.run_ids():
                runner.sweep(run_id)
