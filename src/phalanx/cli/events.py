"""phalanx events"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from phalanx.cli.files import json_option
from phalanx.cli.output import answering, print_json, printable

if TYPE_CHECKING:
    from phalanx.scheduler.home import RunFolder
    from phalanx.store import StatusChange


class Event(NamedTuple):
    """Something that happened to a run, or to one of its replicas. Kinds: status, stop, start, end."""

    at: float
    kind: str
    replica: str | None
    attempt: int | None
    text: str
    facts: dict[str, Any]


@click.command("events")
@click.argument("run")
@json_option
def command(run: str, as_json: bool) -> None:
    """Show everything that happened to a run and its replicas, in the order of time."""
    with answering(as_json=as_json):
        from phalanx.cli.homes import open_home
        from phalanx.scheduler.serving import settle

        home, store = open_home()
        with store:
            settle(home, store)
            found = store.find(run)
            changes = store.statuses(found.id)
        happened = events(home.run(found.id), changes)
        if as_json:
            print_json({"ok": True, "run_id": found.id, "events": [_row(event) for event in happened]})
            return
        width = max((len(event.replica or "run") for event in happened), default=0)
        for event in happened:
            when = f"{_time(event.at).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
            click.echo(f"{when}  {(event.replica or 'run').ljust(width)}  {printable(event.text)}")


def events(folder: RunFolder, changes: list[StatusChange]) -> list[Event]:
    """What the store and the run's folder know."""
    found = [*map(_of_status, changes), *_of_stop(folder.stop_file)]
    for attempt_folder in folder.path.glob("replicas/*/attempt-*"):
        number = attempt_folder.name.rpartition("-")[2]
        if number.isdigit():
            found += _of_replica(attempt_folder, attempt_folder.parent.name, int(number))
    return sorted(found, key=lambda event: event.at)


def _of_status(change: StatusChange) -> Event:
    text = f"{change.status}: {change.reason}" if change.reason else change.status
    facts = {"status": change.status, "reason": change.reason}
    return Event(change.at.timestamp(), "status", None, change.attempt, text, facts)


def _of_stop(path: Path) -> Iterator[Event]:
    asked = _read(path)
    if asked is not None:
        reason = str(asked.get("reason", ""))
        yield Event(path.stat().st_mtime, "stop", None, None, f"asked to stop: {reason}", {"reason": reason})


def _of_replica(folder: Path, name: str, attempt: int) -> Iterator[Event]:
    from phalanx.spool import JSON, Reader

    notes = (record.data() for record in Reader(folder / "spool").poll() if record.kind == JSON)
    start = next((note for note in notes if "start" in note), None)  # the first of all: no more than it is read
    if start is not None:
        pid = start["start"]
        yield Event(start["at"], "start", name, attempt, f"started, process {pid}", {"pid": pid})
    end = _read(folder / "end.json")
    if end is not None:
        facts = {key: end.get(key) for key in ("cause", "code", "signal", "message", "host", "peak")}
        yield Event(end["ended_at"], "end", name, attempt, _end_text(end), facts)


def _end_text(end: dict[str, Any]) -> str:
    cause, message = end["cause"], end["message"]
    text = f"ended: {message}" + (f" ({cause})" if cause != message else "")
    memory_mib = end.get("peak", {}).get("memory_mib")
    return text if memory_mib is None else f"{text}, at most {memory_mib:.0f} MiB"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _row(event: Event) -> dict[str, Any]:
    return {
        "at": _time(event.at).isoformat(),
        "kind": event.kind,
        "replica": event.replica,
        "attempt": event.attempt,
        "text": event.text,
        **event.facts,
    }
