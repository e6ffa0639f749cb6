"""Writes the records of another tool's run into the folder of an attempt, as files like any others."""

from __future__ import annotations

import json
import math
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from phalanx import run_paths
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
from phalanx.spool import JSON, MAX_PAYLOAD, PointWriter, Writer, frame

LARGEST_PICTURE = 64 << 20
LARGEST_LOG = 256 << 20
_BUFFER = 1 << 20
_ENDINGS = {b"\x89P": ".png", b"\xff\xd8": ".jpg", b"GI": ".gif", b"RI": ".webp"}


def records_of(run: ForeignRun, losses: ImportLosses) -> Iterator[Record]:
    """Everything that a run of another tool has. Raises OSError."""
    try:
        yield from run.read(losses)
    except FileRefused as fault:
        losses.add(str(fault), example=run.name)


def record_word(record: Record) -> str:
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
    """Writes the records of one run into the folder of its attempt: to `NAME.points`, `NAME.events` and files.
    `draft` is appended to both names: then an earlier import may have been killed, and other files may be there."""

    def __init__(
        self, attempt: Path, started: float, losses: ImportLosses, name: str = "import", draft: str = ""
    ) -> None:
        self.attempt = attempt
        self.run_folder = attempt.parent.parent.parent
        self.losses = losses
        self.counts: Counter[str] = Counter()
        self.last = started  # the latest time that was seen
        self.ending = Ending("succeeded", "imported", None)
        self.name = name
        self.is_repeated = bool(draft)
        self.points = _Points(attempt / f"{name}.points{draft}")
        self.events = Writer(attempt / f"{name}.events{draft}")
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
            self.counts[record_word(record)] += taken

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
        inside = f"media/{self.name}-{next(self.pictures)}{_ENDINGS.get(image[:2], '')}"
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
        if self.is_repeated and target.is_file() and not target.is_symlink():
            return target.stat().st_size
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
