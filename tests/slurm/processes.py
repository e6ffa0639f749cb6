"""Daemons on record: started, found again by a later process, and ended, each by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.slurm.debian import ClusterError

LOOK_S = 0.05
# The shell goes at once: the daemon is nobody's child here, so no one has to wait for it, and its pid is known.
DETACHED = 'setsid "$@" >>"$LOG_OF_DAEMON" 2>&1 </dev/null & echo $!'


def wait_until(condition: Callable[[], Any], patience_s: float, what: str, look_s: float = LOOK_S) -> Any:
    """What the condition says once it is true."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {patience_s:g} s for {what}")
        time.sleep(look_s)
    return answer


def start_time(pid: int) -> str | None:
    """With the pid it names one process for ever; None when that process is over."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


class Daemon:
    """One process of the cluster, on record in the folder `run` by its pid and start time."""

    def __init__(self, name: str, run: Path, log: Path) -> None:
        self.name = name
        self.record = run / f"{name}.json"
        self.log = log

    @property
    def pid(self) -> int | None:
        """The pid while it is alive."""
        try:
            found = json.loads(self.record.read_text())
        except (OSError, ValueError):
            return None
        return int(found["pid"]) if found["start"] and start_time(found["pid"]) == found["start"] else None

    def start(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Only what it is given is in its environment."""
        done = subprocess.run(
            ["/bin/sh", "-c", DETACHED, "sh", *command],
            env={**environment, "LOG_OF_DAEMON": str(self.log)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd="/",
        )
        pid = int(done.stdout)
        part = self.record.with_suffix(".part")
        part.write_text(json.dumps({"pid": pid, "start": start_time(pid)}))
        part.replace(self.record)
        return pid

    def await_ready(self, is_ready: Callable[[], Any], patience_s: float = 60.0) -> None:
        """Fails at once when the daemon has died."""

        def answer() -> bool:
            if self.pid is None:
                raise ClusterError(f"{self.name} died:\n{self.last_words()}")
            return bool(is_ready())

        wait_until(answer, patience_s, f"{self.name}, whose log is {self.log}")

    def stop(self, sign: int = signal.SIGTERM, grace_s: float = 10.0) -> None:
        """Returns when it is gone; it is killed when it does not go by itself."""
        for each in (sign, signal.SIGKILL):
            if (pid := self.pid) is None:
                break
            with suppress(ProcessLookupError):
                os.kill(pid, each)
            with suppress(ClusterError):
                wait_until(lambda: self.pid is None, grace_s, self.name)
        self.record.unlink(missing_ok=True)

    def last_words(self, lines: int = 8) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"
