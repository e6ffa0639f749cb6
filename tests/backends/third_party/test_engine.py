"""The engine of the example keeps the contract of engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import plan, spec
from phalanx.backends.agent_zip import carry
from phalanx.backends.contract import Engine
from phalanx.home.attempts import AttemptFolder
from tests.backends.engine_contract import EngineContract, Rig
from tests.backends.third_party.shell_backend import BACKEND, ShellEngine

LOADED = spec.load(
    [("p.yml", b"version: 1\nkind: experiment\nrun: {cmd: 'until [ -e finish ]; do sleep 0.1; done'}\n")]
)


class ShellRig(Rig):
    def __init__(self, home: Path) -> None:
        self.home = home
        self.engine: Engine = ShellEngine(home / "shell")

    def submit(self, run_id: str) -> tuple[AttemptFolder, str]:
        folder = self.home / "runs" / run_id
        carry(folder / "job", self.home / "agents")
        for name, text in BACKEND.render(plan.make(LOADED, run_id)).files.items():
            (folder / name).write_text(text)
        handle = self.engine.submit(folder, run_id, 1, 1, working=folder, environment=os.environ)
        return AttemptFolder(folder, run_id, 1, ("master-0",)), handle

    def finish(self, attempt_folder: AttemptFolder) -> None:
        (attempt_folder.run_folder / "finish").touch()

    def restart(self) -> Engine:
        return ShellEngine(self.home / "shell")


class TestShellEngine(EngineContract):
    @pytest.fixture(name="rig")
    def rig_fixture(self, tmp_path: Path) -> Iterator[Rig]:
        rig = ShellRig(tmp_path)
        yield rig
        rig.engine.cancel(rig.engine.observe(()))
