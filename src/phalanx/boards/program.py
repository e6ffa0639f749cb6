"""The user's own `tensorboard`: where it is, and its process, which listens on loopback only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from phalanx.agent.processes import die_with_parent
from phalanx.errors import CallError, SystemFault

HOST = "127.0.0.1"
STARTS_S = 60.0
ENDS_S = 5.0
RELOAD_S = 5  # between two looks of TensorBoard at its folder
_NO_LINGER = struct.pack("ii", 1, 0)
LISTENING = "0A"  # a state of /proc/net/tcp
MISSING = "TensorBoard is not installed, or not on PATH: `pip install tensorboard`"


def find_program(environment: Mapping[str, str]) -> list[str]:
    """The command that starts TensorBoard. Raises CallError."""
    found = shutil.which("tensorboard", path=environment.get("PATH"))
    if found is not None:
        return [found]
    if find_spec("tensorboard") is not None:
        return [sys.executable, "-m", "tensorboard.main"]
    for name in ("python3", "python"):
        python = shutil.which(name, path=environment.get("PATH"))
        if python is not None and _has_module(python):
            return [python, "-m", "tensorboard.main"]
    raise CallError(MISSING)


def _has_module(python: str) -> bool:
    call = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"
    try:
        return subprocess.run([python, "-c", call], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class TensorBoardProcess:
    """TensorBoard on a folder. Call it in a thread that stays: the kernel kills the program when that thread ends."""

    def __init__(self, program: Sequence[str], folder: Path, port: int | None, log: Path) -> None:
        """Raises SystemFault if it cannot be started."""
        self.port = port or free_port()
        self.log = log
        command = [
            *(*program, "--logdir", str(folder), "--host", HOST, "--port", str(self.port)),
            *("--reload_multifile", "true", "--reload_interval", str(RELOAD_S)),
        ]
        try:
            with log.open("wb") as stream:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,  # Ctrl-C is for us; the whole session is ended at once
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - one call of prctl
                )
        except OSError as fault:
            raise SystemFault(f"cannot start {program[0]}: {fault.strerror}", transient=False) from None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def wait(self) -> None:
        """Wait until it answers. Raises SystemFault."""
        deadline = time.monotonic() + STARTS_S
        while time.monotonic() < deadline:
            self.check()
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=5) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)  # not to be listed as a visitor
                return
            time.sleep(0.1)
        waited = f"after {STARTS_S:.0f} s{self._words()}"
        raise SystemFault(f"TensorBoard does not answer at {self.url} {waited}", transient=True)

    def check(self) -> None:
        """Raises SystemFault if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise SystemFault(f"TensorBoard ended with code {code}{self._words()}", transient=False)

    def _words(self) -> str:
        with suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return f": {lines[-1].strip()[:300]}"
        return ""

    def is_used(self) -> bool:
        """Whether someone is connected, or was in the last minute: closed connections are listed for so long."""
        return _has_connections(self.port)

    def end(self) -> None:
        """End it and everything that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(ENDS_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # helpers that outlived it


def _has_connections(port: int) -> bool:
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as stream:
            for line in stream:
                fields = line.split()
                if len(fields) > 3 and fields[3] != LISTENING and wanted in (fields[1][-5:], fields[2][-5:]):
                    return True
    return False
