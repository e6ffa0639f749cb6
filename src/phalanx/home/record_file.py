"""Small shared files of the home: reloaded when another process has changed them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from phalanx.atomic_files import write_atomic
from phalanx.errors import SystemFault, may_recover
from phalanx.locks import locked

Rows = TypeVar("Rows")


class RecordFile(Generic[Rows]):
    """The rows of a file. A change by another process is visible on the next access."""

    def __init__(self, path: Path, name: str, decode: Callable[[Any], Rows], empty: Rows) -> None:
        self.path = path
        self.name = name  # the key of the rows in the file
        self.decode = decode
        self.empty = self._rows = empty
        self._mark: tuple[int, ...] | None = None

    def rows(self) -> Rows:
        """Raises CallError when the file cannot be read: a damaged file must neither grant access nor drop records."""
        try:
            found = self.path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._mark:
                self._rows = self.decode(json.loads(self.path.read_bytes())[self.name])
                self._mark = mark
        except FileNotFoundError:
            self._rows, self._mark = self.empty, None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            message = f"cannot read {self.path} ({fault}): remove it to start without {self.name}"
            raise SystemFault(message, transient=may_recover(fault)) from None
        return self._rows

    def write(self, rows: Any) -> None:
        write_atomic(self.path, json.dumps({"version": 1, self.name: rows}, indent=1).encode())

    def alone(self) -> AbstractContextManager[bool]:
        """Serialises changes to the file: concurrent changes would overwrite each other."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return locked(self.path.with_suffix(".lock"))
