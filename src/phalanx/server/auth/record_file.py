"""Small shared files of the home: reloaded when another process has changed them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from phalanx.atomic_files import write_atomic
from phalanx.errors import SystemFault, may_recover
from phalanx.locks import locked

Row = TypeVar("Row")


class RecordFile(Generic[Row]):
    """The rows of a file. A change by another process is visible on the next access."""

    def __init__(self, path: Path, decode: Callable[[dict[str, Any]], Row]) -> None:
        self.path = path
        self.name = path.stem  # also the key of the list in the file
        self.decode = decode
        self._mark: tuple[int, ...] | None = None
        self._rows: tuple[Row, ...] = ()

    def rows(self) -> tuple[Row, ...]:
        """Raises CallError when the file cannot be read: a damaged file must neither grant access nor drop records."""
        try:
            found = self.path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._mark:
                self._rows = tuple(self.decode(row) for row in json.loads(self.path.read_bytes())[self.name])
                self._mark = mark
        except FileNotFoundError:
            self._rows, self._mark = (), None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            message = f"cannot read {self.path} ({fault}): remove it to start without {self.name}"
            raise SystemFault(message, transient=may_recover(fault)) from None
        return self._rows

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        write_atomic(self.path, json.dumps({"version": 1, self.name: list(rows)}, indent=1).encode())

    def alone(self) -> AbstractContextManager[bool]:
        """Serialises changes to the file: concurrent changes would overwrite each other."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return locked(self.path.with_suffix(".lock"))
