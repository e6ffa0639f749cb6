"""JSON documents that several people edit: reports and the pinned charts of projects, one file each.

Each version has a tag. A change names the tag of the version that it is based on, so no one overwrites what someone
else has changed meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.atomic_files import write_atomic
from phalanx.errors import SystemFault, may_recover
from phalanx.locks import locked

MISSING = '"0"'  # the tag of a document that does not exist
NAME = re.compile(r"[a-z0-9]{1,64}")
SUFFIX = ".json"


class SharedDocument(NamedTuple):
    value: dict[str, Any]
    tag: str


class Outdated(Exception):
    """The document has changed since the version that the change is based on."""

    def __init__(self, current: str) -> None:
        super().__init__("the document has changed meanwhile")
        self.current = current


class SharedDocuments:
    """The documents in one folder of the home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[int, int, int], SharedDocument]] = {}

    def names(self) -> list[str]:
        try:
            found = [path.name.removesuffix(SUFFIX) for path in self.folder.iterdir() if path.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if NAME.fullmatch(name))

    def read(self, name: str) -> SharedDocument | None:
        """Raises SystemFault when its file is damaged."""
        if not NAME.fullmatch(name):
            return None
        path = self._path(name)
        try:
            found = path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = self._known.get(name)
            if known is None or known[0] != mark:
                data = path.read_bytes()
                known = self._known[name] = (mark, SharedDocument(dict(json.loads(data)), _tag(data)))
        except FileNotFoundError:
            self._known.pop(name, None)
            return None
        except (OSError, ValueError, TypeError) as fault:
            raise SystemFault(f"cannot read {path} ({fault})", transient=may_recover(fault)) from None
        return known[1]

    def write(self, name: str, value: dict[str, Any], based_on: str) -> SharedDocument:
        """Raises Outdated when the current version is another; OSError when it cannot be stored."""
        data = json.dumps(value, indent=1).encode()
        with self._alone(name, based_on):
            write_atomic(self._path(name), data)
        return SharedDocument(value, _tag(data))

    def remove(self, name: str, based_on: str) -> None:
        """Raises Outdated, OSError."""
        with self._alone(name, based_on):
            self._path(name).unlink(missing_ok=True)

    @contextmanager
    def _alone(self, name: str, based_on: str) -> Iterator[None]:
        """One change at a time, also of several servers of a home."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with locked(self.folder / ".lock"):
            current = self.read(name)
            tag = MISSING if current is None else current.tag
            if tag != based_on:
                raise Outdated(tag)
            yield

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"


def _tag(data: bytes) -> str:
    return f'"{sha256(data).hexdigest()[:32]}"'
