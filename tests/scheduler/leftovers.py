"""Runs that are over, and what they left, in a home of their own: made directly, since nothing has to run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder
from phalanx.registry.registry import finalize_outputs
from phalanx.store import Artifact, Run, StatusChange, Store
from tests.store.samples import run as sample_run

LONG_AGO = time.time() - 3600


class Left:
    """A home with runs in it."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.store = Store.open(self.home.path)

    def run(
        self, run_id: str, files: Mapping[str, bytes] | None = None, *, status: str = "succeeded", **more: Any
    ) -> Path:
        """The folder of a run that left these files, an hour ago."""
        now = datetime.now(UTC)
        run: Run = sample_run(run_id, **{"status": status, "created_at": now, "finished_at": now, **more})
        folder = self.home.add(run, {}, {})
        self.store.add(run)
        self.store.record(StatusChange(run_id, 1, run.attempt, status, "", now))
        for name, data in (files or {}).items():
            self.write(run_id, name, data)
        return folder.path

    def write(self, run_id: str, name: str, data: bytes) -> Path:
        """As our own copies are written: a draft that is renamed."""
        path = self.home.run(run_id).path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{os.getpid()}.draft")
        draft.write_bytes(data)
        os.utime(draft, (LONG_AGO, LONG_AGO))
        draft.replace(path)
        return path

    def folder(self, run_id: str) -> RunFolder:
        return self.home.run(run_id)

    def settle(self, run_id: str) -> list[Artifact]:
        return finalize_outputs(self.home, self.store, run_id)

    def objects(self) -> list[str]:
        return sorted(path.name for path in (self.home.path / "objects").glob("*/*"))


@pytest.fixture(name="left")
def left_fixture(tmp_path: Path) -> Iterator[Left]:
    left = Left(tmp_path / "home")
    yield left
    left.store.close()
