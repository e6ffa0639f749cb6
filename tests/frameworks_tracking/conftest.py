"""These tests need the real libraries, in an environment of their own: `make test-trackers`.

They are collected only when they are asked for: the default run shall not load a library to find nothing to do.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx import tracking
from tests.frameworks_tracking.kept import Kept

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "callbacks"


@pytest.fixture(name="kept")
def kept_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """This process as a replica of a run, in a folder of its own."""
    kept = Kept(tmp_path / "runs" / "abc")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PHALANX_OUTSIDE", "PHALANX_TRACKING", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in kept.environment(KERAS_BACKEND="torch").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    tracking.finish()
    yield kept
    tracking.finish()


@pytest.fixture(name="example")
def example_fixture(kept: Kept) -> Callable[[str], Kept]:
    """Runs one of the examples as it is, and answers what was kept of it."""

    def run(name: str) -> Kept:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        tracking.finish()
        assert kept.dropped() == {}
        return kept

    return run


@pytest.fixture(name="polyaxon")
def polyaxon_fixture(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """The run as scripts of Polyaxon see it."""
    monkeypatch.syspath_prepend(str(ROOT / "src" / "phalanx" / "tracking" / "polyaxon"))
    monkeypatch.setenv("POLYAXON_IS_MANAGED", "true")
    monkeypatch.setenv("POLYAXON_RUN_OUTPUTS_PATH", str(kept.run / "outputs"))
    yield kept
    for name in [name for name in sys.modules if name.startswith("polyaxon_")]:
        del sys.modules[name]
