"""What a program leaves running, found by a mark in the environment of everything that it starts."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from phalanx.agent.processes import find_marked, read_stat, send

MARK = "PHALANX_TEST_MARK"
PATIENCE_S = 60.0


class Marked:
    """A program and whatever it starts."""

    def __init__(self) -> None:
        self.variables = {MARK: uuid4().hex}
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        """Its output is not read through a pipe, which would stay open as long as anything of it lives."""
        process = subprocess.Popen(command, env={**env, **self.variables}, stdin=subprocess.DEVNULL, **options)
        self.started.append(process)
        return process

    def wait_for_any(self, process: subprocess.Popen[bytes], *files: Path) -> None:
        """Until one of the files is there, or the process has ended."""
        until = time.monotonic() + 2 * PATIENCE_S
        while process.poll() is None and not any(file.exists() for file in files):
            assert time.monotonic() < until, f"none of {files} came"
            time.sleep(0.02)

    def alive(self) -> set[int]:
        found = find_marked(self.variables.items())
        stats = {pid: read_stat(pid) for pid in found}
        return {pid for pid, stat in stats.items() if stat is not None and stat.state not in ("Z", "X")}

    def left(self, patience_s: float = PATIENCE_S) -> list[str]:
        """The commands of those that are still alive after a while; none as soon as all have ended."""
        until = time.monotonic() + patience_s
        while (alive := self.alive()) and time.monotonic() < until:
            time.sleep(0.02)
        return [_command(pid) for pid in alive]

    def kill(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while (alive := self.alive()) and time.monotonic() < until:
            send(alive, signal.SIGKILL)
            time.sleep(0.01)
        for process in self.started:
            process.kill()
            process.wait()


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return f"process {pid}"


@contextmanager
def marked() -> Iterator[Marked]:
    """Whatever happens inside, none of its processes stays."""
    found = Marked()
    try:
        yield found
    finally:
        found.kill()


# For BASH_ENV, which a script of bash reads first. What it starts is not told again.
_MOMENT = """\
moment_left={number} moment_before={before} moment_file={file}
unset BASH_ENV
moment() {{
  [[ $1 == $moment_before ]] && [ $((moment_left -= 1)) -eq 0 ] || return 0
  : >"$moment_file"
  kill -TERM "$$"
}}
set -T
trap 'moment "$BASH_COMMAND"' DEBUG
"""


class Moment:
    """A script of bash sends itself TERM right before its n-th command; of all, or of those that match a pattern.
    Shells act on signals between commands alone, so there is no other moment."""

    def __init__(self, folder: Path, number: int, before: str = "*") -> None:
        script, self.file = folder / f"moment-{number}.sh", folder / f"moment-{number}"
        values = {"number": str(number), "before": before, "file": str(self.file)}
        script.write_text(_MOMENT.format(**{name: quote(value) for name, value in values.items()}))
        self.variables = {"BASH_ENV": str(script)}

    @property
    def has_come(self) -> bool:
        return self.file.exists()
