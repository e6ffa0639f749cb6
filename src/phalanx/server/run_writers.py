"""Files that the server writes into run folders, for clients without access to the folder.

A file has one writer: this process. Several processes of a server, and several servers of a home, have separate files,
and a lock serialises their changes to shared files. Answered data is in the file, even if the server is killed
afterwards.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.atomic_files import make_private
from phalanx.home.home import Home
from phalanx.locks import open_lock, take
from phalanx.server.write_gate import WriteGate
from phalanx.spool import JSON, PointWriter, Writer, frame

WRITER = "mlflow"  # base name of the server's files in an attempt's folder
MOST_WRITERS = 256
_OURS = re.compile(rf"{WRITER}(-\d+){{0,2}}\.")


def is_ours(name: str) -> bool:
    """Whether a server writes this file of an attempt's folder."""
    return _OURS.match(name) is not None


def writer_name(server: int, process: int = 1) -> str:
    """The base name of the files of one process of one server: `mlflow`, `mlflow-2` for the second server of a home,
    `mlflow-1-2` for the second process of the first."""
    parts = [WRITER, *([str(server)] if (server, process) != (1, 1) else []), *([str(process)] if process > 1 else [])]
    return "-".join(parts)


class LoggedPoint(NamedTuple):
    name: str
    value: float
    step: int
    at: float  # seconds since the epoch


class PointBatch(PointWriter):
    """Points written together with one system call."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting: list[bytes] = []

    def append(self, kind: int, payload: bytes) -> None:
        self.waiting.append(frame(kind, payload))

    def write(self, points: Iterable[LoggedPoint]) -> None:
        """Raises OSError when the disk takes only a part; the writer is unusable then."""
        step_at: tuple[int, float] | None = None
        values: dict[str, float] = {}
        for point in points:
            if step_at != (point.step, point.at) or point.name in values:
                self._add(step_at, values)
                step_at, values = (point.step, point.at), {}
            values[point.name] = point.value
        self._add(step_at, values)
        data, self.waiting = b"".join(self.waiting), []
        put(self.descriptor, data)

    def _add(self, step_at: tuple[int, float] | None, values: Mapping[str, float]) -> None:
        if step_at is not None and values:
            self.add(*step_at, values)


def put(descriptor: int, data: bytes) -> None:
    if data and os.write(descriptor, data) != len(data):
        raise OSError("the disk accepted only a part of the data")


class RunWriter:
    """The writer of one run. Its holder has exclusive access to the run among the server's threads."""

    def __init__(self, run_folder: Path, writer: str = WRITER) -> None:
        self.run_folder = run_folder
        self.writer = writer
        self.lock = threading.RLock()
        self.depth = 0  # how often the holder has entered it
        self.users = 0
        self.notes: dict[str, Any] = {}  # cache of the routes about the run, as long as the writer exists
        self._points: dict[Path, PointBatch] = {}
        self._events: dict[Path, Writer] = {}

    def points(self, folder: Path, points: Iterable[LoggedPoint]) -> None:
        """Raises OSError."""
        self._write(self._points, PointBatch, folder / f"{self.writer}.points", lambda writer: writer.write(points))

    def events(self, folder: Path, *events: Mapping[str, Any]) -> None:
        """Adds the time to events without one. Raises OSError."""
        now = time.time()
        data = b"".join(
            frame(JSON, json.dumps({"at": now, **event}, separators=(",", ":")).encode()) for event in events
        )
        self._write(self._events, Writer, folder / f"{self.writer}.events", lambda writer: put(writer.descriptor, data))

    def _write(self, writers: dict[Path, Any], make: Any, path: Path, act: Any) -> None:
        for _ in range(10):
            writer = writers.get(path)
            if writer is None:
                make_private(path.parent, self.run_folder)
                writer = writers[path] = make(path)
            is_kept = False
            try:
                act(writer)
                is_kept = is_there(path, writer.descriptor)
            finally:
                if not is_kept:  # the file was compacted or removed meanwhile, together with what was written
                    self._drop(writers, path)
            if is_kept:
                return
        raise OSError(f"{path} was removed repeatedly while it was written")

    def _drop(self, writers: dict[Path, Any], path: Path) -> None:
        writer = writers.pop(path, None)
        if writer is not None:
            with suppress(OSError):
                writer.close()

    def close(self) -> None:
        for writers in (self._points, self._events):
            for path in list(writers):
                self._drop(writers, path)


def is_there(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one under this path."""
    try:
        named, held = os.stat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (named.st_ino, named.st_dev) == (held.st_ino, held.st_dev)


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Mutual exclusion between processes, by a lock file that exists only while it is held."""
    while True:
        descriptor = open_lock(path)
        try:
            take(descriptor, wait=True)
            if not is_there(path, descriptor):
                continue  # the previous holder removed the file
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


class RunWriters:
    """All writers in use, and a few recent ones. `writer` is the base name of this process's files if other processes
    write to the same runs: they then lock each other out. None if it is the only one."""

    def __init__(
        self, home: Home, turns: WriteGate | None = None, most: int = MOST_WRITERS, writer: str | None = None
    ) -> None:
        self.home = home
        self.turns = turns or WriteGate()
        self.most = most
        self.writer = writer
        self.locks = home.path / "desks"
        if writer is not None:
            self.locks.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._writers: OrderedDict[str, RunWriter] = OrderedDict()

    @contextmanager
    def of(self, run_id: str) -> Iterator[RunWriter]:
        with self._lock:
            writer = self._writers.get(run_id)
            if writer is None:
                writer = self._writers[run_id] = RunWriter(self.home.run(run_id).path, self.writer or WRITER)
            self._writers.move_to_end(run_id)
            writer.users += 1
            self._clear()
        try:
            with self.turns.shared(), writer.lock, self._apart(run_id, writer):
                writer.depth += 1
                try:
                    yield writer
                finally:
                    writer.depth -= 1
        finally:
            with self._lock:
                writer.users -= 1

    def _apart(self, run_id: str, writer: RunWriter) -> AbstractContextManager[None]:
        """Locks out other processes, which may have changed what the writer's cache holds."""
        if self.writer is None or writer.depth:
            return nullcontext()
        writer.notes.clear()
        return alone_with(self.locks / run_id)

    def _clear(self) -> None:
        idle = [run_id for run_id, writer in self._writers.items() if not writer.users]
        for run_id in idle[: max(0, len(self._writers) - self.most)]:
            self._writers.pop(run_id).close()

    def close(self) -> None:
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
