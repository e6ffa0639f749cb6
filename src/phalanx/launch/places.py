"""What runs started from Python need of the place where they are: a home or a server, with the same methods."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.store import Run
    from phalanx.submission.model import Submission


class FailedReplica(NamedTuple):
    """Which replica of a run failed first."""

    replica: str
    rank: int | None
    host: str | None
    message: str


class CallRecord(NamedTuple):
    """What the submitter of a function knows of its call file: the key of its results, and the number of calls."""

    key: bytes
    calls: int


class Place(Protocol):
    """All methods may raise CallError and SystemFault."""

    def submit(self, submission: Submission) -> Run: ...

    def find(self, text: str) -> Run:
        """The run that a user means."""
        ...

    def look(self, run_id: str) -> Run | None:
        """The run with an id, as it is now; None if there is none. Runs proceed while it is called regularly."""
        ...

    def trials(self, group_id: str) -> list[Run]:
        """The runs of a batch that exist so far."""
        ...

    def stop(self, run: Run) -> None: ...

    def spec(self, run: Run) -> str: ...

    def call_record(self, run: Run, digest: str) -> CallRecord:
        """Raises CallError if the key of the run's results is not known here."""
        ...

    def read(self, run: Run, path: str) -> bytes | None:
        """A file of a run's outputs; None if there is none."""
        ...

    def ranks(self, run: Run) -> list[int]: ...

    def failure(self, run: Run) -> FailedReplica | None: ...

    def lines(self, run: Run, tail: int | None, rank: int | None) -> list[str]:
        """The lines of the logs in order of time: the last ones, or all."""
        ...

    def metrics(self, run: Run) -> list[str]: ...

    def values(self, run: Run, metric: str, count: int) -> Sequence[float]:
        """The values of a metric of the first replica, downsampled."""
        ...


def warn_caller(text: str) -> None:
    """A warning at the line of the user's code that called Phalanx."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("phalanx."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def no_key(run_id: str) -> CallError:
    return CallError(
        f"the result of run {run_id} is a pickle, which is read only where the run was submitted, and its key is not "
        f"on this machine: call attach({run_id!r}) there"
    )
