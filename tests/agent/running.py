"""One replica, or several, under a real agent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx import plan, spec
from phalanx.plan.document import document

PATIENCE_S = 90.0


class Agents:
    """A plan under agents in a folder, started as a backend starts them."""

    def __init__(
        self,
        folder: Path,
        command: str,
        *,
        environment: Mapping[str, Any] | None = None,
        framework: str = "pytorch",
        **facts: Any,
    ) -> None:
        content = {
            "version": 1,
            "kind": "experiment",
            "framework": framework,
            "environment": dict(environment or {}),
            "run": {"cmd": command},
        }
        self.plan = plan.make(spec.load_document("test", content), "test-run")
        self.names = [replica.name for replica in self.plan.replicas]
        self.folder = folder
        (folder / "plan.json").write_text(json.dumps(document(self.plan)))
        self.facts = {
            "attempt": 1,
            "host": {"*": "127.0.0.1"},
            "port": {name: 21000 + number for number, name in enumerate(self.names)},
            "path": {"outputs": str(folder), "logs": str(folder), "*": str(folder)},
            "folders": {name: str(self.attempt(name)) for name in self.names},
            "working": str(folder),
            "grace_s": 1.0,
            **facts,
        }
        self.write_facts(self.facts)

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        (self.folder / "facts.json").write_text(json.dumps(facts))

    def attempt(self, name: str = "master-0") -> Path:
        return self.folder / "replicas" / name / "attempt-1"

    def start(self, python: str = sys.executable, *, within: Path | None = None, **environment: str) -> Agents:
        """`within`: a control group for all of it."""
        first = ["sh", "-c", f'echo $$ > {within}/cgroup.procs; exec "$@"', "sh"] if within is not None else []
        subprocess.run(
            [*first, python, "-m", "phalanx.agent", str(self.folder / "plan.json"), str(self.folder / "facts.json")],
            check=True,
            env={**os.environ, **environment},
        )
        return self

    def pid(self, name: str = "master-0") -> int:
        path = self.attempt(name) / "agent.json"
        wait_for(path.exists)
        return int(json.loads(path.read_text())["pid"])

    def end(self, name: str = "master-0") -> dict[str, Any]:
        path = self.attempt(name) / "end.json"
        wait_for(path.exists)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def log(self, name: str = "master-0") -> bytes:
        return (self.attempt(name) / "log").read_bytes()


def wait_for(condition: Any, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def is_open(port: int) -> bool:
    """Whether anybody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
