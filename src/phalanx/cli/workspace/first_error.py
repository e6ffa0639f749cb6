"""The replica that failed first, and the lines of its log that show why: for `phalanx logs --errors`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from phalanx.home.run_folder import RunFolder
    from phalanx.insight.autopsy import ReplicaFailure
    from phalanx.logs.lines import LogLine
    from phalanx.logs.replica_logs import LogSource


class FirstError(NamedTuple):
    """`first`: the replica of the run that failed first. `failures`: those of the chosen replicas that failed, the
    first failure in front. `lines`: of its log, or when none failed, of the first log that speaks of an error;
    `error` is which of them does."""

    first: ReplicaFailure | None
    failures: Sequence[ReplicaFailure]
    lines: Sequence[LogLine]
    error: int | None


def first_error_here(
    folder: RunFolder, sources: Sequence[LogSource], attempt: int, facts: Mapping[str, Any]
) -> FirstError:
    from phalanx.insight.run_failures import read_failures
    from phalanx.logs.first_error import first_error
    from phalanx.logs.replica_logs import ReplicaLog

    logs = {source.name: ReplicaLog(folder.path, source, attempt) for source in sources} if attempt else {}
    failures = read_failures(folder, attempt, facts)
    chosen = [failure for failure in failures if failure.log in logs]
    if chosen:
        excerpt = first_error(logs[chosen[0].log].lines())
        return FirstError(failures[0], chosen, excerpt.lines, excerpt.error)
    hits = [hit for log in logs.values() if (hit := first_error(log.lines())).error is not None]
    found = min(hits, key=lambda hit: hit.lines[hit.error or 0].at, default=None)
    return FirstError(None, (), (), None) if found is None else FirstError(None, (), found.lines, found.error)
