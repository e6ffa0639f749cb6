"""Deadlines of a replica: when to send the checkpoint signal and when to end it. Standard library only, Python 3.8+."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx.agent.processes import Stat
from phalanx.ends import Cause
from phalanx.stored_plan import StoredPlan

CHECKPOINT_S = 300.0  # before the end of a segment or notebook, unless the file sets it
LEAVE_S = 30.0  # before the cluster ends the job: time for the agents to end all replicas and report it
CHECKPOINTED = 85  # exit code of a program that saved and continues in the next segment


class TimeLimits(NamedTuple):
    """`timeout_s`: what is left of the run's `whole_s`. `ends_at`: when the cluster ends the job. `is_segment`:
    the run then continues in another job. `signal` is sent `before_s` before the earlier end. `job_s`: the time limit
    of the job."""

    timeout_s: float | None = None
    ends_at: float | None = None
    is_segment: bool = False
    before_s: float | None = None
    signal: int = signal.SIGUSR1
    whole_s: float | None = None
    job_s: float | None = None

    @property
    def words(self) -> str:
        """The limit that ends the replica: that of the job, if something else than the file made it shorter."""
        if self.whole_s is None and self.job_s is None:
            return "the time limit of its job"
        if self.job_s is not None and (self.whole_s is None or self.job_s < self.whole_s):
            return f"the time limit of its job, {self.job_s:g} s"
        return f"its time limit of {self.whole_s:g} s"


def limits_of(plan: StoredPlan, facts: Mapping[str, Any]) -> TimeLimits:
    is_segment = plan.segment_s is not None
    before_s = plan.checkpoint.before_s
    timeout_s = plan.timeout_s
    if before_s is None and is_segment:
        before_s = CHECKPOINT_S
    if before_s is None and plan.notebook is not None:  # a short one is not at its end when it starts
        times = [limit_s for limit_s in (timeout_s, facts.get("limit_s")) if limit_s is not None]
        before_s = min(CHECKPOINT_S, min(times, default=CHECKPOINT_S) / 4)
    return TimeLimits(
        timeout_s=None if timeout_s is None else max(0.0, timeout_s - facts.get("spent_s", 0.0)),
        ends_at=facts.get("ends_at"),
        is_segment=is_segment,
        before_s=before_s,
        signal=getattr(signal, f"SIG{plan.checkpoint.signal or 'USR1'}"),
        whole_s=timeout_s,
        job_s=None if is_segment else facts.get("limit_s"),
    )


class Deadline:
    """Reports once that it is time to save, and once that time is up. Changes of the system clock do not affect it."""

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
    """The processes that have a handler for a signal: it would kill the others."""
    return [stat.pid for stat in tree if _caught(stat.pid) >> (number - 1) & 1]


def _caught(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            line = next((row for row in stream if row.startswith(b"SigCgt:")), b"SigCgt: 0")
        return int(line.split()[1], 16)
    except (OSError, ValueError):
        return 0
