"""The folder of an attempt: agents on any machine write there how their replicas run and end.

There are no locks on a shared filesystem: one writer per file, and readers only follow.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.agent.supervisor import last_lines
from phalanx.atomic_files import make_private, read_json, write_atomic
from phalanx.ends import Cause, End, read_end
from phalanx.home.run_folder import RunFolder

SAID = (run_paths.LOG, run_paths.AGENT)


class AttemptFolder(NamedTuple):
    """The folder of one attempt of a run."""

    run_folder: Path
    run_id: str
    attempt: int
    replicas: tuple[str, ...]

    def folder(self, replica: str) -> Path:
        return self.run_folder / run_paths.attempt_folder(replica, self.attempt)

    @property
    def before(self) -> AttemptFolder:
        """The previous attempt."""
        return self._replace(attempt=self.attempt - 1)

    @property
    def facts_file(self) -> Path:
        return self.run_folder / run_paths.facts_file(self.attempt)


class ReplicaPhase(StrEnum):
    ABSENT = "absent"  # not started yet
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # its agent is gone, and left no end


class ReplicaState(NamedTuple):
    """What is seen of a replica. `pid` the process to signal; None for one that is not on this machine."""

    state: ReplicaPhase
    pid: int | None = None
    end: End | None = None
    message: str = "its agent was killed"  # for a lost one
    cause: Cause = Cause.LOST  # as its end will have it
    lines: tuple[str, ...] = ()  # what was said last, where it has no log


def read_facts(attempt_folder: AttemptFolder) -> dict[str, Any]:
    """The facts that an attempt was started with; empty when it was not started."""
    found = read_json(attempt_folder.facts_file)
    return found if isinstance(found, dict) else {}


def request_end(folder: Path, number: int) -> None:
    """For an agent that our signals do not reach: asks it to end its replica, or to dump its stack."""
    name = run_paths.ASKED_TO_ABORT if number == signal.SIGQUIT else run_paths.ASKED_TO_END
    (folder / name).touch(mode=0o600)


def read_ends(folder: RunFolder, attempt: int) -> dict[str, End]:
    """How the replicas of an attempt ended, by name; those that have not ended are left out."""
    found = {name: read_end(place) for name, place in folder.replica_folders(attempt)}
    return {name: end for name, end in found.items() if end is not None}


def reported_ends(attempt_folder: AttemptFolder) -> dict[str, End]:
    """The ends of replicas, by name, also one that is not published until its job has ended."""
    found = {}
    for name in attempt_folder.replicas:
        folder = attempt_folder.folder(name)
        end = read_end(folder) or End.from_json(read_json(folder / run_paths.END_HELD))
        if end is not None:
            found[name] = end
    return found


def tail_of(log: Path) -> tuple[str, ...]:
    """The last lines of a log."""
    return tuple(last_lines(str(log)))


def replica_tail(attempt_folder: AttemptFolder, replica: str) -> list[str]:
    """The end of a replica's log."""
    return last_lines(str(attempt_folder.folder(replica) / run_paths.LOG))


def last_activity(attempt_folder: AttemptFolder) -> float:
    """When any replica, or a process that it started, last wrote a line or a metric; their start, if none has."""
    newest = 0.0
    for place in attempt_folder.run_folder.glob(run_paths.attempt_folder("*", attempt_folder.attempt)):
        try:
            with os.scandir(place) as entries:
                said = (entry for entry in entries if entry.name in SAID or entry.name.endswith((".points", ".events")))
                newest = max([newest, *(entry.stat().st_mtime for entry in said)])
        except OSError:
            continue  # it was just removed
    return newest or time.time()


def record_lost(  # noqa: PLR0913
    attempt_folder: AttemptFolder,
    replica: str,
    message: str,
    *,
    cause: Cause = Cause.LOST,
    lines: tuple[str, ...] = (),
    just_now: bool = True,
) -> None:
    """Write the end record that a killed agent could not. Does nothing when one exists. `just_now`: it was there a
    moment ago; otherwise its end is its last sign of life, which shows whether it was the first to fail."""
    folder = attempt_folder.folder(replica)
    make_private(folder, attempt_folder.run_folder)
    end = End(
        cause,
        None,
        None,
        message,
        replica=replica,
        attempt=attempt_folder.attempt,
        ended_at=time.time() if just_now else last_write(folder),
        host=socket.gethostname(),
        last_lines=tuple(last_lines(str(folder / run_paths.LOG))) or lines,
    )
    if read_end(folder) is None:
        write_atomic(folder / run_paths.END, json.dumps(end.to_json()).encode())


def last_write(folder: str | os.PathLike[str]) -> float:
    """When anything in its folder was last written."""
    try:
        with os.scandir(folder) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=time.time())
    except OSError:
        return time.time()
