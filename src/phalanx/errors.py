"""The errors that Phalanx shows, by who must act.

    PhalanxError
    ├── SpecErrors                   your file: one or more faults, each with its place
    ├── CallError                    your call: a missing file, a bad option, a run that does not exist
    │   ├── MissingExtra             it needs a package that is not installed
    │   ├── JobRejected              an engine does not take this job, and will not       backends.contract
    │   └── RequestRefused           a Phalanx server said no                             client.transport
    │       └── NotFound             there is no such run, file or model                  client.transport
    ├── RunFailed                    a run of yours that the call waited for did not succeed
    └── SystemFault(transient)       their system: disk, network, cluster, server, storage
        ├── StoreError               the database
        ├── EngineUnavailable        Slurm or a cluster does not answer now; transient    backends.contract
        ├── ApiUnreachable           no answer of an API server; transient                kubernetes.cluster.api
        ├── ApiFault                 an API server answered with a fault                  kubernetes.cluster.api
        ├── ServerUnreachable        no answer of a Phalanx server; transient             client.transport
        └── DigestMismatch           a file is not what was recorded of it                artifacts.downloads

After a SpecErrors or a CallError the same call fails again. A SystemFault says by `transient` whether the same call may
work later: code that tries again asks `is_transient`. `agent`, `tracking` and `uploads` do without this module. They
have their own: `uploads.UploadRefused` (do not try again) and `uploads.UploadUnavailable` (transient).

The message says what is wrong, the location where, the suggestion what to write instead.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, NamedTuple


class Location(NamedTuple):
    """A part of one line of a file. Lines and columns count from 1; line 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0
    width: int = 1
    excerpt: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "column": self.column}


class Note(NamedTuple):
    """A hint about a location in the user's file, such as how an old field was interpreted; never an error."""

    place: Location
    path: str
    message: str

    def as_json(self) -> dict[str, Any]:
        return {**self.place.as_json(), "path": self.path, "message": self.message}


class SpecError(NamedTuple):
    """One error in a file."""

    place: Location
    path: str
    message: str
    suggestion: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {**self.place.as_json(), "path": self.path, "message": self.message, "suggestion": self.suggestion}

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


class RunFailed(PhalanxError):
    """A run did not succeed. `replica`, `rank` and `host` are those of the first failure, if one is known; `traceback`
    is what its function printed."""

    def __init__(  # noqa: PLR0913 - all that is known of a failure
        self,
        message: str,
        run_id: str,
        *,
        replica: str | None = None,
        rank: int | None = None,
        host: str | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(message if traceback is None else f"{message}\n\n{traceback}".rstrip())
        self.run_id = run_id
        self.replica = replica
        self.rank = rank
        self.host = host
        self.traceback = traceback


class SystemFault(PhalanxError):
    """A disk, network, cluster, server or storage did not do its part. `transient`: the same call may work later."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


class StoreError(SystemFault):
    """The database did not do its part: unreachable, locked, full; not transient: damaged, or of a newer Phalanx."""

    def __init__(self, message: str, *, transient: bool = True) -> None:
        super().__init__(message, transient=transient)


_FAILING = {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV}
_PASSING = {
    *(errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
    *(errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN),
}


def is_transient(fault: BaseException) -> bool:
    """For code that tries again: whether the same call may work later. What the operating system raises may pass."""
    return fault.transient if isinstance(fault, SystemFault) else isinstance(fault, OSError)


def may_recover(fault: BaseException) -> bool:
    """Whether the operating system says that something is full or busy, rather than missing, forbidden or broken."""
    return isinstance(fault, OSError) and fault.errno in _PASSING


def os_reason(fault: Exception) -> str:
    """What is wrong, in the words of the operating system where it raised the fault."""
    return (fault.strerror or str(fault)).lower() if isinstance(fault, OSError) else str(fault)


def disk_fault(message: str, fault: Exception) -> SystemFault:
    """For files of Phalanx itself."""
    return SystemFault(f"{message}: {os_reason(fault)}", transient=may_recover(fault))


def path_error(message: str, fault: OSError, hint: str = "") -> CallError | SystemFault:
    """For a path that the user named. Missing or forbidden: the user can correct it. A full or failing disk: not."""
    text = f"{message}: {os_reason(fault)}" + (f"; {hint}" if hint else "")
    if fault.errno in _FAILING | _PASSING:
        return SystemFault(text, transient=may_recover(fault))
    return CallError(text)
