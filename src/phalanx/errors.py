"""Every error that Phalanx shows, by who must act.

    PhalanxError
    ├── SpecErrors    the file is wrong: one or more faults, each with its place. Trying again is useless.
    ├── CallError     the call is wrong: a missing file, a bad option. Trying again is useless.
    │   └── MissingExtra  it needs a package that is not installed.
    └── StoreError    the database cannot do its part: unreachable, full, damaged. It may pass.

A message says what is wrong; a place says where; a suggestion says what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Location(NamedTuple):
    """A stretch of one line of a file. Lines and columns count from 1; line 0 is the file as a whole."""

    file: str
    line: int = 0
    column: int = 0
    width: int = 1
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something to say about one place of the user's file."""

    place: Location
    path: str
    message: str

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
            "path": self.path,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class Note(Diagnostic):
    """Read differently from how it was written, or worth knowing; never a fault."""


@dataclass(frozen=True, slots=True)
class SpecError(Diagnostic):
    """One fault of a file."""

    suggestion: str | None = field(default=None)

    def as_json(self) -> dict[str, Any]:
        return {**Diagnostic.as_json(self), "suggestion": self.suggestion}

    def __str__(self) -> str:
        where = f"{self.place.file}:{self.place.line}:{self.place.column}"
        path = f" {self.path}:" if self.path else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{where}:{path} {self.message}{hint}"


class PhalanxError(Exception):
    """The root: whatever is raised on purpose."""


class SpecErrors(PhalanxError):
    """All faults found in the user's files, in the order of their places."""

    def __init__(self, errors: Iterable[SpecError]) -> None:
        once = dict.fromkeys(errors)  # a shorthand that means two things would be blamed twice
        self.errors = tuple(sorted(once, key=lambda error: error.place[:3]))
        super().__init__("\n".join(str(error) for error in self.errors))


class CallError(PhalanxError):
    """The command line, or the arguments of a call, are wrong."""


class MissingExtra(CallError):
    """The call needs a package that an extra of Phalanx installs. `phalanx.extras.needed` raises it."""


class StoreError(PhalanxError):
    """The database cannot do its part: unreachable, full, damaged, of a newer Phalanx. Perhaps for a while only."""
