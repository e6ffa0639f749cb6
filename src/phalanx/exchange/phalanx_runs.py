"""Imports runs of Phalanx itself: folders of another home, a backup, or of `phalanx export`.

A run's folder is the truth of that run: it is copied. It may be untrusted, so what other packages trust (the run,
its history, its plan, its ends) is validated, and a run that was not over is over here: importing starts
nothing.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.errors import path_error
from phalanx.exchange.importer import ImportOutcome
from phalanx.formats import plain_values, safe_files
from phalanx.formats.foreign_run import ImportLosses
from phalanx.formats.safe_files import FileMissing, FileRefused
from phalanx.home.home import Home
from phalanx.home.run_folder import RunFolder, encode_run
from phalanx.ingest import adoption
from phalanx.spool import JSON, Reader, Record, Writer, split
from phalanx.store import DONE, Run, StatusChange, Store
from phalanx.store.statuses import Status
from phalanx.stored_plan import PlanDamaged, decode_plan
from phalanx.tracking.external_folder import new_id

MAX_DOCUMENT = 64 << 20
MOST_ATTEMPTS = 10_000
# Folders whose files are copied as they are
TREES = (run_paths.CODE, run_paths.OUTPUTS, run_paths.ARTIFACTS, run_paths.MODELS, run_paths.SERIES)
ATTEMPT_FILES = re.compile(r"log|spool|[\w.-]+\.(points|events)|media/[\w. -]+")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,40}")
_ATTEMPT = re.compile(r"([a-z][a-z0-9_]{0,40}-\d{1,6})/" + run_paths.attempt_name(r"(\d{1,6})") + r"/(.+)")
_TEXTS = ("project", "kind", "backend", "user", "status", "reason")
_MAYBE_TEXTS = ("name", "description", "framework", "original", "cloning", "group", "commit")
_TIMES = ("created_at", "updated_at", "started_at", "finished_at")


class PhalanxRun(NamedTuple):
    folder: Path
    run: Run
    history: list[StatusChange]
    plan: dict[str, Any]


def is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (run_paths.RUN, run_paths.HISTORY))


def runs_in(source: Path) -> list[Path]:
    """The folders of runs: the given one, or those in a folder or a home."""
    if is_run(source):
        return [source]
    inside = [path for path in source.glob("*") if path.is_dir() and not path.is_symlink()]
    for place in (source / "runs", source, *(inside if len(inside) == 1 else ())):  # an archive of one folder
        found = sorted(path for path in place.glob("*") if not path.name.startswith(".") and is_run(path))
        if found:
            return found
    return []


def read(folder: Path) -> PhalanxRun:
    """Read a run. Raises FileRefused when Phalanx could not have written it."""
    try:
        run = _run(document(folder / run_paths.RUN, folder))
        history = list(_history(folder, run.id))
        plan = document(folder / run_paths.PLAN, folder)
        for replica in decode_plan(plan).replicas:
            if not (_ROLE.fullmatch(replica.role) and _is_count(replica.number) and _is_count(replica.rank)):
                raise FileRefused("runs whose plan cannot be read")
    except PlanDamaged:
        raise FileRefused("runs whose plan cannot be read") from None
    except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise FileRefused("folders that are not runs") from None
    if not history:
        raise FileRefused("runs without a history")
    return PhalanxRun(folder, run, history, plan)


def document(path: Path, root: Path) -> dict[str, Any]:
    data = json.loads(safe_files.read_bytes(path, root, MAX_DOCUMENT))
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 31


def _run(data: dict[str, Any]) -> Run:
    if not _ID.fullmatch(_text(data["id"])):
        raise FileRefused("runs with ids that are not valid")
    values: dict[str, Any] = {name: _text(data[name]) for name in _TEXTS}
    values |= {name: None if data.get(name) is None else _text(data[name]) for name in _MAYBE_TEXTS}
    values |= {name: None if data.get(name) is None else _time(data[name]) for name in _TIMES}
    values |= {name: int(data[name]) for name in ("attempt", "priority")}
    if values["created_at"] is None or values["updated_at"] is None or abs(values["priority"]) > 1 << 30:
        raise ValueError("not a run")
    return Run(
        **values,
        id=data["id"],
        tags=tuple(_text(tag) for tag in data["tags"]),
        params={
            plain_values.name(str(name)): plain_values.value(value) for name, value in dict(data["params"]).items()
        },
        summary={},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return plain_values.text(value)


def _time(value: Any) -> datetime:
    seconds = float(value)
    if not (math.isfinite(seconds) and 0 <= seconds < 1e11):
        raise ValueError("not a time")
    return datetime.fromtimestamp(seconds, UTC)


def _history(folder: Path, run_id: str) -> Iterator[StatusChange]:
    records, _, _ = split(safe_files.read_bytes(folder / run_paths.HISTORY, folder, MAX_DOCUMENT))
    number = 0
    for record in records:
        data = _json(record)
        if data.get("number") == number + 1:
            number += 1
            attempt = data["attempt"]
            if not _is_count(attempt) or attempt > MOST_ATTEMPTS:
                raise ValueError("not an attempt")
            yield StatusChange(
                run_id, number, attempt, Status(data["status"]), _text(data["reason"]), _time(data["at"])
            )


def _json(record: Record) -> dict[str, Any]:
    data = record.data()
    return data if isinstance(data, dict) else {}


class PhalanxImporter:
    """Imports runs of Phalanx into a home. `on_progress` is called for every file."""

    def __init__(self, home: Home, store: Store, on_progress: Callable[[], None] = lambda: None) -> None:
        self.home = home
        self.store = store
        self.on_progress = on_progress

    def look(self, own: PhalanxRun, project: str | None) -> ImportOutcome:
        counts = Counter("files" for _ in files_of(own.folder))
        return _outcome("found", own, project, own.run.id, counts)

    def bring_in(self, own: PhalanxRun, project: str | None, losses: ImportLosses, *, as_new: bool) -> ImportOutcome:
        """Import the run completely or not at all. Raises CallError."""
        run_id = new_id() if as_new else own.run.id
        if (self.home.runs / run_id).exists() or run_id in self.store.ids():
            return _outcome("known", own, project, run_id, {})
        renamed = own._replace(
            run=own.run._replace(id=run_id, project=project or own.run.project),
            plan=json.loads(json.dumps(own.plan).replace(own.run.id, run_id)),
        )
        draft = self.home.runs / f".{run_id}"
        try:
            draft.mkdir(mode=0o700)
            counts = self._fill(draft, renamed, losses)
            draft.rename(self.home.runs / run_id)
        except OSError as fault:
            raise path_error(f"{own.folder} cannot be imported", fault) from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # there only when something failed
        run = self.home.run(run_id).read()
        assert run is not None
        adoption.index(self.home, self.store, run)
        return _outcome("imported", own, project, run_id, counts)

    def _fill(self, draft: Path, own: PhalanxRun, losses: ImportLosses) -> Counter[str]:
        safe_files.write(draft / run_paths.RUN, encode_run(own.run))
        safe_files.write(draft / run_paths.PLAN, json.dumps(own.plan).encode())
        for change in own.history:
            RunFolder(draft).append(change)
        last = own.history[-1]
        if last.status not in DONE:
            reason = "was not over when it was imported"
            RunFolder(draft).append(last._replace(number=last.number + 1, status=Status.STOPPED, reason=reason))
        counts: Counter[str] = Counter()
        for name, path in files_of(own.folder):
            try:
                if name.endswith(".events") and name.startswith(f"{run_paths.REPLICAS}/"):
                    _copy_events(path, own.folder, draft / name, losses)
                else:
                    safe_files.copy(path, own.folder, draft / name)
                counts["files"] += 1
            except FileRefused as fault:
                losses.add(str(fault), example=name)
            os.utime(draft)  # the cleanup leaves a draft in use alone
            self.on_progress()
        for name, data in documents_of(own.folder, losses):
            safe_files.write(draft / name, data)
        return counts


def _copy_events(path: Path, root: Path, target: Path, losses: ImportLosses) -> None:
    """Copy only valid events: ingest relies on it."""
    os.close(safe_files.open_within(path, root))
    safe_files.make_folder(target.parent)
    writer = Writer(target)
    try:
        for record in Reader(path).poll():
            try:
                event = _json(record)
                if record.kind == JSON and isinstance(event.get("kind"), str):
                    writer.append_json(plain_values.value(event))
                    continue
            except (ValueError, RecursionError):
                pass
            losses.add("events that could not be read", example=path.name)
    finally:
        writer.close()


def _outcome(state: str, own: PhalanxRun, project: str | None, run_id: str, counts: Any) -> ImportOutcome:
    name = own.run.name or own.run.id
    status = own.history[-1].status
    return ImportOutcome(state, f"phalanx:{own.run.id}", name, project or own.run.project, run_id, str(status), counts)


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files to copy unchanged. Replicas first: points move from there to `series` once a run is over."""
    for name, path in safe_files.walk(folder / run_paths.REPLICAS):
        found = _ATTEMPT.fullmatch(name)
        if found is not None and ATTEMPT_FILES.fullmatch(found[3]):
            yield f"{run_paths.REPLICAS}/{name}", path
    for tree in TREES:
        if not (folder / tree).is_symlink():
            for name, path in safe_files.walk(folder / tree):
                yield f"{tree}/{name}", path
    if (folder / run_paths.SPEC).is_file():
        yield run_paths.SPEC, folder / run_paths.SPEC


def documents_of(folder: Path, losses: ImportLosses) -> Iterator[tuple[str, bytes]]:
    """The documents to validate and rewrite: the ends of replicas, and the environment of the run."""
    for name, path in safe_files.walk(folder / run_paths.REPLICAS):
        if name.endswith(f"/{run_paths.END}") and _ATTEMPT.fullmatch(name):
            try:
                yield f"{run_paths.REPLICAS}/{name}", json.dumps(_end(document(path, folder))).encode()
            except (OSError, FileRefused, ValueError, TypeError, KeyError, RecursionError):
                losses.add("ends of replicas that could not be read", example=name)
    try:
        records = document(folder / run_paths.RECORDS, folder)
        yield run_paths.RECORDS, json.dumps({k: v for k, v in records.items() if k != "environment"}).encode()
    except FileMissing:
        return
    except (OSError, FileRefused, ValueError, RecursionError):
        losses.add("environment records that could not be read", example=folder.name)


def _end(data: dict[str, Any]) -> dict[str, Any]:
    """An end with validated types. Raises KeyError, TypeError, ValueError."""
    for name in ("code", "signal"):
        if data.get(name) is not None and not (isinstance(data[name], int) and abs(data[name]) < 1 << 31):
            raise TypeError(f"{name} is no number")
    peak = {str(name): float(value) for name, value in dict(data.get("peak") or {}).items()}
    times = {
        name: None if data.get(name) is None else _time(data[name]).timestamp() for name in ("started_at", "ended_at")
    }
    texts = {name: _text(data[name]) for name in ("cause", "message")}
    host = {"host": _text(data["host"]) if data.get("host") is not None else None}
    lines = {"last_lines": [_text(line) for line in data.get("last_lines") or []][:1000]}
    return {**data, **texts, **times, **host, **lines, "peak": peak}
