"""When a replica is told to save what it has, and when it must have ended. Standard library only, Python 3.8+."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx.agent.processes import Stat
from phalanx.ends import Cause

CHECKPOINT_S = 300.0  # before the end of a segment, where the file does not say
LEAVE_S = 30.0  # before the place ends the job: for all to be ended by us, and to say so
CHECKPOINTED = 85  # the exit code of a program that saved and wants to go on in the next segment


class TimeLimits(NamedTuple):
    """`timeout_s`: of the run, as far as it is left of `whole_s`. `ends_at`: when the place ends the job. `is_segment`:
    the run goes on then, in another job. `signal` is sent `before_s` before the end, whichever it is."""

    timeout_s: float | None = None
    ends_at: float | None = None
    is_segment: bool = False
    before_s: float | None = None
    signal: int = signal.SIGUSR1
    whole_s: float | None = None


def limits_of(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> TimeLimits:
    told: Mapping[str, Any] = plan.get("checkpoint") or {}
    is_segment = plan.get("segment_s") is not None
    before_s = told.get("before_s")
    if before_s is None and is_segment:
        before_s = CHECKPOINT_S
    timeout_s = plan.get("timeout_s")
    return TimeLimits(
        timeout_s=None if timeout_s is None else max(0.0, timeout_s - facts.get("spent_s", 0.0)),
        ends_at=facts.get("ends_at"),
        is_segment=is_segment,
        before_s=before_s,
        signal=getattr(signal, f"SIG{told.get('signal') or 'USR1'}"),
        whole_s=timeout_s,
    )


class Deadline:
    """Says once that it is time to save, and once that it is over. Clocks that are set do not move it."""

    def __init__(self, limits: TimeLimits) -> None:
        now = time.monotonic()
        ends = []
        if limits.timeout_s is not None:
            ends.append((now + limits.timeout_s, Cause.TIMEOUT))
        if limits.ends_at is not None:
            left_s = max(0.0, limits.ends_at - time.time())
            ends.append(
                (now + left_s - min(LEAVE_S, left_s / 5), Cause.SEGMENT if limits.is_segment else Cause.TIMEOUT)
            )
        self.end_at, self.cause = min(ends) if ends else (float("inf"), Cause.TIMEOUT)
        self.save_at = self.end_at - limits.before_s if limits.before_s is not None else float("inf")

    def is_time_to_save(self, now: float) -> bool:
        if now < self.save_at:
            return False
        self.save_at = float("inf")
        return True

    def is_over(self, now: float) -> bool:
        if now < self.end_at:
            return False
        self.end_at = float("inf")
        return True


def processes_handling(tree: Iterable[Stat], number: int) -> list[int]:
    """The processes that have a handler for a signal: whoever has none would die of it."""
    return [stat.pid for stat in tree if _caught(stat.pid) >> (number - 1) & 1]


def _caught(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            line = next((row for row in stream if row.startswith(b"SigCgt:")), b"SigCgt: 0")
        return int(line.split()[1], 16)
    except (OSError, ValueError):
        return 0
