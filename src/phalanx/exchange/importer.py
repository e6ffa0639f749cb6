"""Imports a run of another tool into a home: a run folder like any other, with copied files."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.errors import path_error
from phalanx.formats import plain_values, safe_files
from phalanx.formats.foreign_run import (
    Ending,
    ForeignEvent,
    ForeignFile,
    ForeignImage,
    ForeignLog,
    ForeignModel,
    ForeignRun,
    ImportLosses,
    Points,
    Record,
)
from phalanx.formats.safe_files import FileRefused
from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.spool import JSON, MAX_PAYLOAD, PointWriter, Writer, frame
from phalanx.store import Run, Store

SOURCE = "phalanx.source"  # the label with the source of a run
PATIENCE_S = 3600.0  # an import without activity for this long was killed
LARGEST_PICTURE = 64 << 20
LARGEST_LOG = 256 << 20
_BUFFER = 1 << 20
_ENDINGS = {b"\x89P": ".png", b"\xff\xd8": ".jpg", b"GI": ".gif", b"RI": ".webp"}


class ImportOutcome(NamedTuple):
    """What became of a run: `imported`, `known` (it was there already), or `found` (nothing was to be written)."""

    state: str
    source: str
    name: str
    project: str
    run_id: str | None
    status: str | None
    counts: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "counts": dict(self.counts)}


def remove(home: Home, store: Store, run_id: str) -> None:
    folder = home.run(run_id).path
    grave = folder.with_name(f".removed-{run_id}")
    if folder.exists():
        folder.rename(grave)  # removed in one step, so that no part of it is adopted
    store.delete(run_id)
    shutil.rmtree(grave, ignore_errors=True)


class Importer:
    """Imports runs into a home. `on_progress` is called for every record."""

    def __init__(self, home: Home, store: Store, on_progress: Callable[[], None] = lambda: None) -> None:
        self.home = home
        self.store = store
        self.on_progress = on_progress
        self.known = store.labelled(SOURCE)  # the runs that were imported before, by source

    def look(self, run: ForeignRun, project: str, losses: ImportLosses) -> ImportOutcome:
        """What an import would do, without writing anything. Raises CallError."""
        counts: Counter[str] = Counter()
        status = "succeeded"
        for record in _records(run, losses):
            self.on_progress()
            if isinstance(record, Ending):
                status = record.status
            else:
                counts[_word(record)] += len(record.values) if isinstance(record, Points) else 1
        return ImportOutcome("found", run.source, run.name, project, None, status, counts)

    def bring_in(self, run: ForeignRun, project: str, losses: ImportLosses) -> ImportOutcome:
        """Import a run completely, or not at all on an error. Raises CallError."""
        source = plain_values.name(run.source)
        before = self.known.get(source)
        if before is not None and not self._is_unfinished(before):
            return ImportOutcome("known", run.source, run.name, project, before, None, {})
        if before is not None:
            remove(self.home, self.store, before)
        made, attempt = self._create(run, project)
        try:
            with ExitStack() as undo:
                undo.callback(remove, self.home, self.store, made.id)
                (attempt / run_paths.IMPORT_MARK).touch(mode=0o600)
                with RunImport(attempt, made.created_at.timestamp(), losses) as sink:
                    for record in _records(run, losses):
                        sink.take(record)
                        self.on_progress()
                ending = sink.ending
                at = max(ending.at or sink.last, made.created_at.timestamp())
                external_runs.finish(self.home, made.id, ending.status, ending.reason, at)
                external_runs.adopt(self.home, self.store, made.id)
                (attempt / run_paths.IMPORT_MARK).unlink()
                undo.pop_all()
        except OSError as fault:
            raise path_error(f"{run.name} ({run.source}) cannot be imported", fault) from None
        self.known[source] = made.id
        return ImportOutcome("imported", run.source, run.name, project, made.id, ending.status, sink.counts)

    def _is_unfinished(self, run_id: str) -> bool:
        return any(self.home.run(run_id).path.glob(f"{run_paths.ATTEMPT_FOLDERS}/{run_paths.IMPORT_MARK}"))

    def _create(self, run: ForeignRun, project: str) -> tuple[Run, Path]:
        labels = {plain_values.name(name): plain_values.text(text) for name, text in run.labels.items()}
        return external_runs.create(
            self.home,
            project=plain_values.name(project),
            source=f"imported from {run.source.partition(':')[0]}",
            name=plain_values.name(run.name),
            description=plain_values.text(run.description) or None,
            tags=[plain_values.name(tag) for tag in run.tags if tag],
            params={plain_values.name(name): plain_values.value(value) for name, value in run.params.items()},
            labels={**labels, SOURCE: plain_values.name(run.source)},
            created_at=run.started,
            user=plain_values.name(run.user) if run.user else None,
            patience_s=PATIENCE_S,
        )


def _records(run: ForeignRun, losses: ImportLosses) -> Iterator[Record]:
    try:
        yield from run.read(losses)
    except FileRefused as fault:
        losses.add(str(fault), example=run.name)


def _word(record: Record) -> str:
    if isinstance(record, ForeignEvent):
        return record.kind if record.kind.endswith("s") else f"{record.kind}s"
    return {
        Points: "points",
        ForeignImage: "images",
        ForeignFile: "artifacts",
        ForeignModel: "models",
        ForeignLog: "logs",
    }[type(record)]


class _Points(PointWriter):
    """Writes many points at once. A killed import starts over, so nothing needs to be complete before."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting = bytearray()

    def append(self, kind: int, payload: bytes) -> None:
        self.waiting += frame(kind, payload)
        if len(self.waiting) > _BUFFER:
            self.flush()

    def flush(self) -> None:
        with os.fdopen(os.dup(self.descriptor), "wb") as stream:
            stream.write(self.waiting)
        self.waiting.clear()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            super().close()


class RunImport:
    """Writes the records of one run into the folder of its attempt."""

    def __init__(self, attempt: Path, started: float, losses: ImportLosses) -> None:
        self.attempt = attempt
        self.run_folder = attempt.parent.parent.parent
        self.losses = losses
        self.counts: Counter[str] = Counter()
        self.last = started  # the latest time that was seen
        self.ending = Ending("succeeded", "imported", None)
        self.points = _Points(attempt / "import.points")
        self.events = Writer(attempt / "import.events")
        self.pictures = count(1)
        self.logged = 0

    def __enter__(self) -> RunImport:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.points.close()
        finally:
            self.events.close()

    def take(self, record: Record) -> None:
        """Raises OSError."""
        if isinstance(record, Ending):
            self.ending = record
            return
        try:
            taken = self._take(record)
        except FileRefused as fault:
            self.losses.add(str(fault), example=str(getattr(record, "name", "")))
        else:
            self.counts[_word(record)] += taken

    def _take(self, record: Record) -> int:
        if isinstance(record, Points):
            return self._take_points(record)
        if isinstance(record, ForeignEvent):
            return self._note(record.kind, record.time, record.data)
        if isinstance(record, ForeignImage):
            return self._take_picture(record)
        if isinstance(record, ForeignFile):
            return self._take_file(record)
        if isinstance(record, ForeignModel):
            return self._take_model(record)
        return self._take_log(record) if isinstance(record, ForeignLog) else 0

    def _take_points(self, record: Points) -> int:
        values = {plain_values.name(name): value for name, value in record.values.items() if name}
        time = self._time(record.time)
        try:
            self.points.add(record.step, time, values)
        except (struct.error, OverflowError):
            self.losses.add("points whose step is too large")
            return 0
        self.last = max(self.last, time)
        return len(values)

    def _time(self, time: float) -> float:
        return time if math.isfinite(time) and 0 < time < 1e11 else self.last

    def _note(self, kind: str, time: float, data: Mapping[str, Any]) -> int:
        event = {"at": self._time(time), "kind": kind, **plain_values.value(dict(data))}
        if isinstance(event.get("name"), str):
            event["name"] = plain_values.name(event["name"])
        payload = json.dumps(event, separators=(",", ":"))
        if len(payload) > MAX_PAYLOAD:
            raise FileRefused(f"{kind}s that are too large")
        self.events.append(JSON, payload.encode())
        return 1

    def _take_picture(self, record: ForeignImage) -> int:
        image = record.image
        if isinstance(image, Path):
            image = safe_files.read_bytes(image, record.root or image.parent, LARGEST_PICTURE)
        inside = f"media/import-{next(self.pictures)}{_ENDINGS.get(image[:2], '')}"
        safe_files.write(self.attempt / inside, image)
        fields = {"name": record.name, "step": record.step, "path": inside, "caption": record.caption}
        return self._note("image", record.time, fields)

    def _take_file(self, record: ForeignFile) -> int:
        inside = f"artifacts/{safe_files.below(record.name)}"
        size = self._copy(record.path, record.root, inside)
        fields = {"path": inside, "name": record.name, "type": record.type, "size": size}
        return self._note("artifact", self.last, fields)

    def _copy(self, path: Path, root: Path, inside: str) -> int:
        target = self.run_folder / inside
        if os.path.lexists(target):
            raise FileRefused("files of the same name")
        try:
            return safe_files.copy(path, root, target)
        except (FileExistsError, NotADirectoryError):
            raise FileRefused("files of the same name as a folder") from None

    def _take_model(self, record: ForeignModel) -> int:
        if isinstance(record.folder, str):
            inside = safe_files.below(record.folder)
        else:
            inside = f"models/{safe_files.below(record.name.replace('/', '_'))}/{safe_files.below(record.version)}"
            root = record.root or record.folder
            for name, path in safe_files.walk(record.folder):
                try:
                    self._copy(path, root, f"{inside}/{safe_files.below(name)}")
                except FileRefused as fault:
                    self.losses.add(str(fault), example=name)
        sizes = [path.stat().st_size for _, path in safe_files.walk(self.run_folder / inside)]
        if (self.run_folder / inside).is_file():
            sizes = [(self.run_folder / inside).stat().st_size]
        if not sizes:
            raise FileRefused("models without files")
        fields = {"name": record.name, "path": inside, "size": sum(sizes), "files": len(sizes), "metrics": {}}
        about = {"description": record.description, "labels": dict(record.labels)}
        return self._note("model", record.time, {**fields, **about})

    def _take_log(self, record: ForeignLog) -> int:
        data = record.printed
        if isinstance(data, Path):
            data = safe_files.read_bytes(data, record.root or data.parent, LARGEST_LOG)
        self.logged += len(data)
        if self.logged > LARGEST_LOG:
            raise FileRefused("logs that are too long")
        with (self.attempt / run_paths.LOG).open("ab") as stream:
            stream.write(data)
        return 1
