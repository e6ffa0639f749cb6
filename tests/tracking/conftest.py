from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import tracking
from phalanx.tracking import TrackedRun
from tests.tracking.reading import FOREIGN, Replica


@pytest.fixture(name="replica")
def replica_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    """This process as a replica of a run."""
    replica = Replica(tmp_path / "runs" / "abc").make()
    _only(monkeypatch, replica.environment())
    yield replica
    tracking.finish()


@pytest.fixture(name="run")
def run_fixture(replica: Replica) -> TrackedRun:
    return tracking.start()


@pytest.fixture(name="home")
def home_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process as a plain script, whose runs go into a home of its own."""
    home = tmp_path / "home"
    _only(monkeypatch, {"PHALANX_HOME": str(home)})
    yield home
    tracking.finish()


def _only(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Nothing else says that we are a run."""
    tracking.finish()
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
