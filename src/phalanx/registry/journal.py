"""The journal of the model registry, its source of truth, and its index in the store.

<home>/models.journal   one record per change
<home>/models.lock      held by the process that adds one

A record is synced to disk before the change is reported. The next process that opens the journal updates the index, so
a killed writer does no harm.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx.errors import CallError
from phalanx.locks import open_lock, take
from phalanx.spool import Reader, Writer
from phalanx.store.model_index import ModelEvent, ModelIndex
from phalanx.tracking.external_folder import user_name

PATIENCE_S = 60.0
_LAST_TIME = 2.0**33  # in the year 2242


class Journal:
    """Any number of processes may use it at once. All methods may raise CallError, StoreError and OSError."""

    def __init__(self, home: Path, index: ModelIndex) -> None:
        self.path = home / "models.journal"
        self.lock = home / "models.lock"
        self.index = index

    def sync(self) -> None:
        """Update the index."""
        if self._size() != self.index.position()[1]:
            with self.changing():
                pass

    def rebuild(self) -> None:
        """Rebuild the index."""
        with self._locked():
            self.index.clear()
            self._index()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Inside, the index matches the journal, and no other process changes either."""
        with self._locked():
            self._index()
            yield

    def write(  # noqa: PLR0913 - the fields of every record
        self,
        kind: str,
        model: str,
        version: int | None = None,
        data: Mapping[str, Any] | None = None,
        *,
        reason: str = "",
        user: str | None = None,
        at: Any = None,
    ) -> None:
        """Append a record and index it; only inside `changing`."""
        is_time = isinstance(at, int | float) and math.isfinite(at) and 0 <= at < _LAST_TIME
        record = {"at": at if is_time else time.time(), "user": user or user_name(), "kind": kind, "model": model}
        writer = Writer(self.path)
        try:
            writer.append_json({**record, "version": version, "reason": reason, **(data or {})})
            writer.sync()
        except ValueError:
            raise CallError(f"`{model}`: its record is too large") from None
        finally:
            writer.close()
        self._index()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = open_lock(self.lock)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not take(descriptor, wait=False):
                if time.monotonic() > deadline:
                    raise CallError(
                        f"another process has held {self.lock} for a minute: end it, or retry when it is done"
                    )
                time.sleep(0.005)
            yield
        finally:
            os.close(descriptor)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _index(self) -> None:
        number, end = self.index.position()
        if self._size() < end:  # it is not the journal that was indexed
            self.index.clear()
            number = end = 0
        reader = Reader(self.path, end)
        events = [_event(number + count, record.data()) for count, record in enumerate(reader.poll(), start=1)]
        if events:
            self.index.add(events, reader.offset)


def _event(number: int, data: Mapping[str, Any]) -> ModelEvent:
    usual = ("at", "user", "kind", "model", "version", "reason")
    at = datetime.fromtimestamp(data["at"], UTC)
    rest = {name: value for name, value in data.items() if name not in usual}
    return ModelEvent(number, at, data["user"], data["kind"], data["model"], data["version"], data["reason"], rest)
