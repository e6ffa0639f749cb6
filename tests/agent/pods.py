"""A pod without a cluster: the folders that one mounts, and the agent as its first process."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx import plan, spec
from phalanx.backends.agent_zip import carried
from phalanx.frames import Decoder
from phalanx.plan.document import document

PATIENCE_S = 90.0


class Pod:
    """`root` stands for /phalanx of one pod. `members` of its template, of which it is one."""

    def __init__(
        self,
        root: Path,
        command: str,
        *,
        environment: Mapping[str, Any] | None = None,
        framework: str = "pytorch",
        members: Sequence[str] = ("master-0",),
        **place: Any,
    ) -> None:
        self.root, self.members = root, list(members)
        content = {
            "version": 1,
            "kind": "experiment",
            "framework": framework,
            "environment": dict(environment or {}),
            "run": {"cmd": command},
        }
        self.plan = document(plan.make(spec.load_document("test", content), "run-1"))
        for name in ("job", "agent", "code", "run", "bundle"):
            (root / name).mkdir(parents=True)
        for name, data in zip(("agent.pyz", "tracking.zip"), carried(), strict=True):
            (root / "agent" / name).write_bytes(data)
        self.place: dict[str, Any] = {
            "version": 1,
            "host": {"*": "127.0.0.1"},
            "port": {},
            "courier": "frames",
            "server": None,
            "run_folder": str(root / "run"),
            "code": {"kind": "bundle", "path": str(root / "code"), "working": str(root / "code")},
            "outputs": str(root / "run" / "outputs"),
            "data": {},
            "yields": [],
            "peers_s": 20,
            "grace_s": 1,
            "steps": [],
            **place,
        }
        self.write()

    def write(self) -> None:
        (self.root / "job" / "plan.json.gz").write_bytes(gzip.compress(json.dumps(self.plan).encode()))
        (self.root / "job" / "place.json").write_text(json.dumps(self.place))

    def variables(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PHALANX_POD_ROOT": str(self.root),
            "PHALANX_MEMBERS": ",".join(self.members),
            "PHALANX_ATTEMPT": "1",
            **more,
        }

    def start(
        self, mode: str = "--pod", *, python: str = sys.executable, before: str = "", **variables: str
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(mode, python=python, before=before),
            env=self.variables(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.root,
        )

    def command(self, mode: str = "--pod", *, python: str = sys.executable, before: str = "") -> list[str]:
        """`before`: what is changed in the agent's modules first."""
        agent = str(self.root / "agent" / "agent.pyz")
        if not before:
            return [python, "-I", "-S", agent, *mode.split()]
        lines = ("import sys", f"sys.path.insert(0, {agent!r})", before, "from phalanx.agent.__main__ import main")
        return [python, "-I", "-S", "-c", "\n".join((*lines, "sys.exit(main())")), *mode.split()]

    def run(self, mode: str = "--pod", **options: str) -> Said:
        process = self.start(mode, **options)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        return Said(process.returncode, out, err.decode())

    def attempt(self, name: str = "master-0") -> Path:
        return self.root / "run" / "replicas" / name / "attempt-1"

    def log(self, name: str = "master-0") -> bytes:
        return (self.attempt(name) / "log").read_bytes()

    def end(self, name: str = "master-0") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.attempt(name) / "end.json").read_bytes())
        return found


class Said:
    """What came out of a container, and how it ended."""

    def __init__(self, code: int, out: bytes, err: str = "") -> None:
        self.code, self.out, self.err = code, out, err

    def files(self, *members: str) -> dict[tuple[str, str], bytes]:
        """What whoever reads it has at home then."""
        decoder, found = Decoder(members or ("master-0",)), dict[tuple[str, str], bytearray]()
        for line in self.out.split(b"\n")[:-1]:
            for piece in decoder.feed(line):
                kept = found.setdefault((piece.member, piece.file), bytearray())
                kept.extend(bytes(max(0, piece.offset - len(kept))))
                kept[piece.offset : piece.offset + len(piece.data)] = piece.data
        return {key: bytes(data) for key, data in found.items()}
