"""What the server itself writes into the folders of runs, for clients who have no folder of their own.

A file has one writer: this process. What was answered is in the file, whoever is killed afterwards.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.backends.attempts import make_private
from phalanx.scheduler.home import Home
from phalanx.server.turns import Turns
from phalanx.spool import JSON, PointWriter, Writer, frame

WRITER = "mlflow"  # what the server's files in an attempt's folder are called
MOST_DESKS = 256


class Point(NamedTuple):
    name: str
    value: float
    step: int
    at: float  # seconds since the epoch


class Burst(PointWriter):
    """Points that are written together by one call of the system."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting: list[bytes] = []

    def append(self, kind: int, payload: bytes) -> None:
        self.waiting.append(frame(kind, payload))

    def write(self, points: Iterable[Point]) -> None:
        """Raises OSError when the disk does not take all of it; the writer is of no use then."""
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
        raise OSError("the disk took only a part of it")


class Desk:
    """One run that the server writes to. Whoever sits at it is alone with the run, among the server's own threads."""

    def __init__(self, run_folder: Path) -> None:
        self.run_folder = run_folder
        self.lock = threading.RLock()
        self.sitting = 0
        self.notes: dict[str, Any] = {}  # what the routes remember of the run while the desk is there
        self._points: dict[Path, Burst] = {}
        self._events: dict[Path, Writer] = {}

    def attempt(self, replica: str, attempt: int) -> Path:
        return self.run_folder / "replicas" / replica / f"attempt-{attempt}"

    def points(self, folder: Path, points: Iterable[Point]) -> None:
        """Raises OSError."""
        self._write(self._points, Burst, folder / f"{WRITER}.points", lambda writer: writer.write(points))

    def events(self, folder: Path, *events: Mapping[str, Any]) -> None:
        """Each with the time, when it has none. Raises OSError."""
        now = time.time()
        data = b"".join(
            frame(JSON, json.dumps({"at": now, **event}, separators=(",", ":")).encode()) for event in events
        )
        self._write(self._events, Writer, folder / f"{WRITER}.events", lambda writer: put(writer.descriptor, data))

    def _write(self, writers: dict[Path, Any], make: Any, path: Path, act: Any) -> None:
        for _ in range(10):
            writer = writers.get(path)
            if writer is None:
                make_private(path.parent, self.run_folder)
                writer = writers[path] = make(path)
            try:
                act(writer)
                if is_there(path, writer.descriptor):
                    return
            except BaseException:
                self._drop(writers, path)
                raise
            self._drop(writers, path)  # the file was settled or removed under us: what we wrote went with it
        raise OSError(f"{path} is taken away again and again")

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
    """Whether what we have open is still what stands under its name."""
    try:
        named, held = os.stat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (named.st_ino, named.st_dev) == (held.st_ino, held.st_dev)


class Desks:
    """As many as are in use, and the last few others."""

    def __init__(self, home: Home, turns: Turns | None = None, most: int = MOST_DESKS) -> None:
        self.home = home
        self.turns = turns or Turns()
        self.most = most
        self._lock = threading.Lock()
        self._desks: OrderedDict[str, Desk] = OrderedDict()

    @contextmanager
    def of(self, run_id: str) -> Iterator[Desk]:
        with self._lock:
            desk = self._desks.get(run_id)
            if desk is None:
                desk = self._desks[run_id] = Desk(self.home.run(run_id).path)
            self._desks.move_to_end(run_id)
            desk.sitting += 1
            self._clear()
        try:
            with self.turns.together(), desk.lock:
                yield desk
        finally:
            with self._lock:
                desk.sitting -= 1

    def _clear(self) -> None:
        idle = [run_id for run_id, desk in self._desks.items() if not desk.sitting]
        for run_id in idle[: max(0, len(self._desks) - self.most)]:
            self._desks.pop(run_id).close()

    def close(self) -> None:
        with self._lock:
            for desk in self._desks.values():
                desk.close()
            self._desks.clear()
