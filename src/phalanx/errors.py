"""All errors that Phalanx raises on purpose, grouped by who must act.

    PhalanxError
    ├── SpecErrors    the file is invalid: one or more errors, each with its location. Retrying does not help.
    ├── CallError     the call is invalid: a missing file, a bad option. Retrying does not help.
    │   └── MissingExtra  the call needs a package that is not installed.
    └── StoreError    the database is unreachable, full or damaged. May be temporary.

The message says what is wrong, the location where, the suggestion what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Location(NamedTuple):
    """A part of one line of a file. Lines and columns count from 1; line 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0
    width: int = 1
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A message about one location in the user's file."""

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
    """A hint, such as how an old field was interpreted; never an error."""


@dataclass(frozen=True, slots=True)
class SpecError(Diagnostic):
    """One error in a file."""

    suggestion: str | None = field(default=None)

    def as_json(self) -> dict[str, Any]:
        return {**Diagnostic.as_json(self), "suggestion": self.suggestion}

    def __str__(self) -> str:
        where = f"{self.place.file}:{self.place.line}:{self.place.column}"
        path = f" {self.path}:" if self.path else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{where}:{path} {self.message}{hint}"


class PhalanxError(Exception):
    """The base of all errors that Phalanx raises on purpose."""


class SpecErrors(PhalanxError):
    """All errors found in the user's files, ordered by location."""

    def __init__(self, errors: Iterable[SpecError]) -> None:
        once = dict.fromkeys(errors)  # a shorthand for two fields would be reported twice
        self.errors = tuple(sorted(once, key=lambda error: error.place[:3]))
        super().__init__("\n".join(str(error) for error in self.errors))


class CallError(PhalanxError):
    """The command line, or the arguments of a call, are invalid."""


class MissingExtra(CallError):
    """The call needs a package that an extra of Phalanx installs. `phalanx.extras.needed` raises it."""


class StoreError(PhalanxError):
    """The database is unreachable, full, damaged or of a newer Phalanx. May be temporary."""
