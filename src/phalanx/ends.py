"""How a replica ended: the causes, and `end.json`, which agents write and everyone else reads.

Standard library only, Python 3.8+. The values are stored in files and in the database: they never change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from phalanx import run_paths

_VERSION = 1


class Cause(str, Enum):  # noqa: UP042 - Python 3.8
    """Why a replica ended."""

    FINISHED = "finished"
    ERROR = "error"  # it failed by itself: an exit code, a signal
    MEMORY = "memory"  # killed because it used more memory than it may
    TIMEOUT = "timeout"  # ended by a time limit
    STOPPED = "stopped"  # on request
    LOST = "lost"  # its agent, its node or its job is gone
    MEETING = "meeting"  # it could not reach the other replicas
    STALLED = "stalled"  # no replica did anything any more
    SETUP = "setup"  # its node or pod could not be prepared
    SEGMENT = "segment"  # it continues in the next job

    def __str__(self) -> str:  # as `enum.StrEnum` of Python 3.11 has it
        return str.__str__(self)

    def __format__(self, format_spec: str) -> str:  # Python 3.12 would write `Cause.FINISHED`
        return str.__format__(self, format_spec)


FAILURES = (
    Cause.ERROR,
    Cause.MEMORY,
    Cause.TIMEOUT,
    Cause.LOST,
    Cause.MEETING,
    Cause.STALLED,
    Cause.SETUP,
)
_STATUSES = {Cause.FINISHED: "succeeded", Cause.STOPPED: "stopped", Cause.SEGMENT: "stopped"}
_CAUSES = {"succeeded": Cause.FINISHED, "stopped": Cause.STOPPED}


def status_of(cause: Cause) -> str:
    """The status of a replica that ended so."""
    return _STATUSES.get(cause, "failed")


def cause_of(status: str) -> Cause:
    """The cause for a run that only says its status: one that Phalanx did not start."""
    return _CAUSES.get(status, Cause.ERROR)


class End(NamedTuple):
    """The end of one replica in one attempt."""

    cause: Cause
    code: int | None
    signal: int | None
    message: str
    replica: str = ""
    attempt: int = 1
    started_at: float | None = None  # None: it never started
    ended_at: float = 0.0
    host: str | None = ""
    log_bytes: int = 0
    last_lines: tuple[str, ...] = ()
    peak: Mapping[str, float] = {}  # the most that it used: cpu_s, memory_mib, fair_mib

    def to_json(self) -> dict[str, Any]:
        """The content of `end.json`."""
        return {
            "version": _VERSION,
            "replica": self.replica,
            "attempt": self.attempt,
            "cause": self.cause.value,
            "code": self.code,
            "signal": self.signal,
            "message": self.message,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "host": self.host,
            "log_bytes": self.log_bytes,
            "last_lines": list(self.last_lines),
            "peak": dict(self.peak),
        }

    @classmethod
    def from_json(cls, content: Any) -> End | None:
        """None for content that is no end. A cause that only a newer version knows counts as an error."""
        if not isinstance(content, dict) or not isinstance(content.get("cause"), str):
            return None
        ended_at, lines = _number(content.get("ended_at")), content.get("last_lines") or []
        if ended_at is None or not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            return None
        host, peak = content.get("host"), content.get("peak")
        numbers = {str(name): _number(value) for name, value in (peak if isinstance(peak, dict) else {}).items()}
        return cls(
            cause=decode_cause(content["cause"]),
            code=_whole(content.get("code")),
            signal=_whole(content.get("signal")),
            message=str(content.get("message") or ""),
            replica=str(content.get("replica") or ""),
            attempt=_whole(content.get("attempt")) or 1,
            started_at=_number(content.get("started_at")),
            ended_at=ended_at,
            host=host if isinstance(host, str) else None,
            log_bytes=_whole(content.get("log_bytes")) or 0,
            last_lines=tuple(lines),
            peak={name: number for name, number in numbers.items() if number is not None},
        )


def decode_cause(text: str) -> Cause:
    """A stored cause. One that only a newer version knows counts as an error."""
    try:
        return Cause(text)
    except ValueError:
        return Cause.ERROR


def read_end(folder: str | os.PathLike[str]) -> End | None:
    """The end in the folder of an attempt. None without one; a damaged one counts as none, so its replica is lost."""
    try:
        with open(os.path.join(folder, run_paths.END), "rb") as stream:
            return End.from_json(json.loads(stream.read()))
    except (OSError, ValueError, RecursionError):
        return None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
