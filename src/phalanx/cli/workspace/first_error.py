"""The replica that failed first, and the lines of its log that show why: for `phalanx logs --errors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from phalanx.logs.lines import LogLine
    from phalanx.logs.replica_logs import LogSource


class FailedReplica(NamedTuple):
    """A replica that failed."""

    name: str
    rank: int | None
    attempt: int
    at: float
    cause: str
    message: str


class FirstError(NamedTuple):
    """`ends`: the failed replicas, in order of time. `lines`: from the log of the first one or, if none failed, from
    the first log with an error; `error`: index of the line with the error."""

    ends: Sequence[FailedReplica]
    lines: Sequence[LogLine]
    error: int | None


def first_error_here(run_folder: Path, sources: Sequence[LogSource], attempt: int) -> FirstError:
    from phalanx.logs.first_error import first_error
    from phalanx.logs.replica_logs import ReplicaLog, failures_of

    logs = [ReplicaLog(run_folder, source, attempt) for source in sources] if attempt else []
    failures = failures_of(logs)
    if failures:
        excerpt = first_error(failures[0].log.lines())
        ends = [
            FailedReplica(one.log.voice.name, one.log.voice.rank, one.log.attempt, one.at, one.cause, one.message)
            for one in failures
        ]
        return FirstError(ends, excerpt.lines, excerpt.error)
    hits = [hit for log in logs if (hit := first_error(log.lines())).error is not None]
    first = min(hits, key=lambda hit: hit.lines[hit.error or 0].at, default=None)
    return FirstError((), (), None) if first is None else FirstError((), first.lines, first.error)
