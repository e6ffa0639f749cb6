"""The events of a run and its replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx import run_paths
from phalanx.ends import read_end
from phalanx.home.tracked_events import event_text, read_events
from phalanx.spool import JSON, Reader

if TYPE_CHECKING:
    from phalanx.home.run_folder import RunFolder
    from phalanx.store import ReplicaRecord, StatusChange


ALERTS = ("alert", "removed")


class RunEvent(NamedTuple):
    """An event of a run or of one of its replicas. Kinds: status, stop, start, end, and what training tracked."""

    at: float
    kind: str
    replica: str | None
    attempt: int | None
    text: str
    facts: dict[str, Any]


def events_of_folder(folder: RunFolder, changes: Iterable[StatusChange]) -> list[RunEvent]:
    """The events in the store and in the run's folder."""
    found = [*map(_of_status, changes), *_of_stop(folder.stop_file), *map(of_tracked, read_events(folder.path, ALERTS))]
    for attempt_folder in sorted(folder.path.glob(run_paths.ATTEMPT_FOLDERS)):  # for events of the same moment
        attempt = run_paths.attempt_number(attempt_folder.name)
        if attempt is not None:
            found += _of_replica(attempt_folder, attempt_folder.parent.name, attempt)
    return sorted(found, key=lambda event: event.at)


def of_tracked(event: Mapping[str, Any]) -> RunEvent:
    """An event that training code recorded."""
    facts = {name: value for name, value in event.items() if name not in ("at", "kind", "replica", "attempt", "text")}
    if "text" in event:
        facts["content"] = event["text"]
    at = event.get("at")
    return RunEvent(
        float(at) if isinstance(at, int | float) else 0.0,
        str(event.get("kind")),
        event["replica"],
        event["attempt"],
        event_text(dict(event)),
        facts,
    )


def _of_status(change: StatusChange) -> RunEvent:
    text = f"{change.status}: {change.reason}" if change.reason else change.status
    facts = {"status": change.status, "reason": change.reason}
    return RunEvent(change.at.timestamp(), "status", None, change.attempt, text, facts)


def _of_stop(path: Path) -> Iterator[RunEvent]:
    asked = _read(path)
    if asked is not None:
        reason = str(asked.get("reason", ""))
        yield RunEvent(path.stat().st_mtime, "stop", None, None, f"stop requested: {reason}", {"reason": reason})


def _of_replica(folder: Path, name: str, attempt: int) -> Iterator[RunEvent]:
    notes = (record.data() for record in Reader(folder / run_paths.SPOOL).poll() if record.kind == JSON)
    start = next((note for note in notes if "start" in note), None)  # it is the first record: stop reading there
    if start is not None:
        pid = start["start"]
        yield RunEvent(start["at"], "start", name, attempt, f"started, process {pid}", {"pid": pid})
    end = read_end(folder)
    if end is not None:
        facts = {key: getattr(end, key) for key in ("cause", "code", "signal", "message", "host", "peak")}
        yield RunEvent(end.ended_at, "end", name, attempt, _end_text(facts), facts)


def _end_text(facts: Mapping[str, Any]) -> str:
    cause, message = facts["cause"], facts["message"]
    text = f"ended: {message}" + (f" ({cause})" if cause != message else "")
    memory_mib = facts["peak"].get("memory_mib")
    return text if memory_mib is None else f"{text}, peak {memory_mib:.0f} MiB"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def events_of_rows(
    changes: Iterable[StatusChange], replicas: Iterable[ReplicaRecord], alerts: Iterable[Mapping[str, Any]]
) -> list[RunEvent]:
    """The same from a server's responses, which lack process ids and stop requests."""
    found = [*map(_of_status, changes), *map(of_tracked, alerts)]
    for replica in replicas:
        if replica.started_at is not None:
            text = "started" if replica.pid is None else f"started, process {replica.pid}"
            at = replica.started_at.timestamp()
            found.append(RunEvent(at, "start", replica.name, replica.attempt, text, {"pid": replica.pid}))
        if replica.finished_at is not None:
            end = {
                "cause": replica.cause or replica.status,
                "code": replica.code,
                "signal": replica.signal,
                "message": replica.reason,
                "host": replica.host,
                "peak": dict(replica.peak),
            }
            at = replica.finished_at.timestamp()
            found.append(RunEvent(at, "end", replica.name, replica.attempt, _end_text(end), end))
    return sorted(found, key=lambda event: event.at)
