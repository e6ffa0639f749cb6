"""These tests need the real frameworks, in environments of their own: `make test-frameworks`.

They are collected only when they are asked for; those in test_seeds.py only with PHALANX_TEST_CORPUS, too. Without an
environment its tests are skipped, unless PHALANX_NEVER_SKIP names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from scripts.environments import ENVIRONMENTS, built

from tests.frameworks.stage import Stage


class Staged(Protocol):
    def __call__(self, example: str, environment: str, source: Path | None = None) -> Stage: ...


@pytest.fixture(name="stage")
def stage_fixture(tmp_path: Path) -> Iterator[Staged]:
    """`stage("pytorch", "torch")`: that example, with that environment; or the files of another folder."""
    made: list[Stage] = []

    def stage(example: str, environment: str, source: Path | None = None) -> Stage:
        python = built(environment)
        if python is None:
            reason = f"there is no environment `{environment}` here: `make frameworks FRAMEWORKS={environment}`"
            assert environment not in os.environ.get("PHALANX_NEVER_SKIP", "").split(","), reason
            pytest.skip(reason)
        made.append(Stage(tmp_path, example, python, source))
        return made[-1]

    assert set(os.environ.get("PHALANX_NEVER_SKIP", "").split(",")) <= {"", *ENVIRONMENTS}
    yield stage
    for one in made:
        one.close()
