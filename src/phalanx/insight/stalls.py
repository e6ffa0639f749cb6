"""Detects whether a silent run is still working."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from phalanx import run_paths
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder
from phalanx.insight.autopsy import ends_with_exception
from phalanx.spool import JSON, split

STUCK_S = 20.0  # seconds of silence and idleness of all replicas after an exception
IDLE_PERCENT = 10.0  # of one core, all replicas together
SPOOL_TAIL = 1 << 16  # bytes: minutes of notes, however much is logged


class UsageSample(NamedTuple):
    """A replica's most recent measurement."""

    at: float
    cpu_percent: float | None
    memory_mib: float
    threads: int


def silent_s(attempt_folder: AttemptFolder) -> float:
    """For how long no replica has written a line or a metric."""
    return time.time() - attempts.last_activity(attempt_folder)


def is_stuck(attempt_folder: AttemptFolder) -> bool:
    """Whether a rank raised and cannot exit: its log ends with an exception, and all replicas are silent and idle.
    Ranks of JAX, MXNet and MPI wait for the others at exit, and those wait for them."""
    if len(attempt_folder.replicas) < 2 or silent_s(attempt_folder) < STUCK_S:
        return False
    if not any(ends_with_exception(attempts.replica_tail(attempt_folder, name)) for name in attempt_folder.replicas):
        return False
    uses = [newest_use(attempt_folder.folder(name) / run_paths.SPOOL) for name in attempt_folder.replicas]
    if any(use is not None and (use.cpu_percent is None or time.time() - use.at > STUCK_S) for use in uses):
        return False  # unknown
    return sum(use.cpu_percent or 0.0 for use in uses if use is not None) < IDLE_PERCENT


def newest_use(spool: Path) -> UsageSample | None:
    """The last measurement in a spool, of which only the end is read. CPU is the use since the previous measurement."""
    try:
        with spool.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - SPOOL_TAIL))
            records = split(stream.read())[0]
    except OSError:
        return None
    notes = [record.data() for record in records if record.kind == JSON]
    uses = [note for note in notes if "use" in note]
    if not uses:
        return None
    last = uses[-1]
    start = next((note["at"] for note in notes if "start" in note), None)
    before_at, before_s = (uses[-2]["at"], uses[-2]["use"]["cpu_s"]) if len(uses) > 1 else (start, 0.0)
    percent = None
    if before_at is not None and last["at"] > before_at:
        percent = max(0.0, 100.0 * (last["use"]["cpu_s"] - before_s) / (last["at"] - before_at))
    return UsageSample(last["at"], percent, last["use"]["memory_mib"], int(last["use"]["threads"]))
