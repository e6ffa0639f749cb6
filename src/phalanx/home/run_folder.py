"""One run's folder: run.json, history, requests to stop, plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import run_paths
from phalanx.atomic_files import write_atomic
from phalanx.naming import without_control_characters
from phalanx.spool import Reader, Writer
from phalanx.store import DONE, Run, StatusChange


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def plan_file(self) -> Path:
        return self.path / run_paths.PLAN

    @property
    def stop_file(self) -> Path:
        return self.path / run_paths.STOP

    def read(self) -> Run | None:
        """The run as submitted, with the status from its history; None when it cannot be read."""
        try:
            run = decode_run(json.loads((self.path / run_paths.RUN).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        for change in self.history():
            run = run._replace(status=change.status, reason=change.reason, attempt=change.attempt, updated_at=change.at)
        return run

    def history(self) -> list[StatusChange]:
        found: list[StatusChange] = []
        for record in Reader(self.path / run_paths.HISTORY).poll():
            change = _decode_change(self.path.name, record.data())
            if change.number == len(found) + 1:  # any other line was written concurrently: the first one counts
                found.append(change)
        return found

    def append(self, change: StatusChange) -> None:
        """Append a line to the history. The end of a run is synced to disk before it is reported; earlier statuses need
        not survive a crash of the machine, since its processes do not either."""
        writer = Writer(self.path / run_paths.HISTORY)
        try:
            writer.append_json({**change._asdict(), "run_id": None, "at": change.at.timestamp()})
            if change.status in DONE:
                writer.sync()
        finally:
            writer.close()

    def ask_to_stop(self, reason: str) -> None:
        """Leave a request for the scheduler; the first one counts. The run may be one of thousands that wait, so a
        marker in the home shows which one to process."""
        if not self.stop_file.exists():
            write_atomic(self.stop_file, json.dumps({"reason": reason}).encode())
        (self.path.parent.parent / "stops" / self.path.name).touch(mode=0o600)

    def set_priority(self, priority: int) -> None:
        """Raises OSError, and ValueError for a record that cannot be read."""
        record = self.path / run_paths.RUN
        write_atomic(record, json.dumps({**json.loads(record.read_bytes()), "priority": priority}, indent=1).encode())

    def stop_reason(self) -> str | None:
        try:
            return str(json.loads(self.stop_file.read_bytes())["reason"])
        except (OSError, ValueError, KeyError):
            return None

    def submitted(self) -> dict[str, Any]:
        """The facts of its submission: `working` (where its replicas start), `from` (the folder of its code), `host`,
        `venv`, and `git` of code that was sent. Empty if they are lost."""
        try:
            found = json.loads((self.path / run_paths.SUBMITTED).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def is_remote(self) -> bool:
        """Whether it was submitted over a server: its `notify` may do less."""
        return bool(self.submitted().get("remote"))

    @property
    def code(self) -> Path:
        """Its snapshot, if it has one."""
        return self.path / run_paths.CODE

    def has_snapshot(self) -> bool:
        """Whether it works in its own copy of the code. Its home may have been elsewhere when it was submitted; an
        imported run does not say where it was."""
        working = self.submitted().get("working")
        if working is None:
            return self.code.is_dir()
        return Path(working).parts[-2:] == (self.path.name, run_paths.CODE)

    def working(self) -> Path | None:
        """The folder in which its replicas start, which may no longer exist; None if that is lost."""
        if self.has_snapshot():
            return self.code
        folder = self.submitted().get("working")
        return Path(folder) if folder else None

    def replica_folders(self, attempt: int) -> Iterator[tuple[str, Path]]:
        base = self.path / run_paths.REPLICAS
        for folder in sorted(base.iterdir()) if base.is_dir() else ():
            if (folder / run_paths.attempt_name(attempt)).is_dir():
                yield folder.name, folder / run_paths.attempt_name(attempt)


def encode_run(run: Run) -> bytes:
    times = ("created_at", "updated_at", "started_at", "finished_at")
    data: dict[str, Any] = {**run._asdict(), "tags": list(run.tags), "params": dict(run.params), "summary": {}}
    del data["best"]  # like the summary, it is in the points
    data |= {name: value.timestamp() if (value := data[name]) is not None else None for name in times}
    return json.dumps(data, default=str, indent=1).encode()


def decode_run(data: dict[str, Any]) -> Run:
    for name in ("created_at", "updated_at", "started_at", "finished_at"):
        data[name] = _time(data[name]) if data[name] is not None else None
    for name in ("project", "name", "user", "group"):  # the folder may come from another home, or an older Phalanx
        if isinstance(data[name], str):
            data[name] = without_control_characters(data[name])
    return Run(**{**data, "tags": tuple(map(without_control_characters, data["tags"]))})


def _decode_change(run_id: str, data: dict[str, Any]) -> StatusChange:
    return StatusChange(**{**data, "run_id": run_id, "at": _time(data["at"])})


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
