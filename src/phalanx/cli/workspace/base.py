"""Where the runs are that a verb is about: in the home of this machine, or on a server. The verbs know only this.

`open_place` chooses: PHALANX_SERVER names a server; else PHALANX_HOME, or being part of a run, means this machine; else
the server of `phalanx login`; else ~/.phalanx.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.artifacts.downloads import DownloadResult
    from phalanx.artifacts.outputs import OutputEntry
    from phalanx.artifacts.previews import Preview
    from phalanx.artifacts.trees import Progress
    from phalanx.cli.workspace.activity import ActivitySnapshot
    from phalanx.cli.workspace.events import RunEvent
    from phalanx.cli.workspace.first_error import FirstError
    from phalanx.cli.workspace.log_follower import LogBatch
    from phalanx.client.config import ServerChoice
    from phalanx.insight.stragglers import RunProgress
    from phalanx.logs.lines import LogLine
    from phalanx.logs.replica_logs import LogSource
    from phalanx.store import Artifact, ReplicaRecord, Run, StatusChange
    from phalanx.store.series.run_series import Bucket, Series, Spread, Summary
    from phalanx.submission.model import Submission


class RunQueries(Protocol):
    """What is kept of runs; as `Store` has it. What names a run that is not there raises CallError."""

    def find(self, prefix: str) -> Run: ...
    def runs(
        self, query: str = ..., sort: str = ..., limit: int | None = ..., offset: int = ..., project: str | None = ...
    ) -> list[Run]: ...
    def count(self, query: str = ..., project: str | None = ...) -> int: ...
    def statuses(self, run_id: str) -> list[StatusChange]: ...
    def replicas(self, run_id: str) -> list[ReplicaRecord]: ...
    def facts(self, run_id: str) -> dict[str, Any]: ...
    def labels(self, run_id: str) -> dict[str, str]: ...
    def summaries(self, run_id: str) -> dict[str, Summary]: ...
    def artifacts(self, run_id: str) -> list[Artifact]: ...


class SeriesReader(Protocol):
    """The series of a run; as `RunSeries` has it."""

    def names(self) -> list[str]: ...
    def replicas(self, metric: str) -> list[str]: ...
    def summaries(self) -> dict[str, Summary]: ...
    def series(self, metric: str, replica: str | None = ...) -> list[Series]: ...
    def over_ranks(self, metric: str, count: int | None = ...) -> list[Spread]: ...
    def buckets(
        self, metric: str, count: int, replica: str | None = ..., first: int | None = ..., last: int | None = ...
    ) -> dict[str, list[Bucket]]: ...


class RunFiles(Protocol):
    """What runs left."""

    def entries(self, run: Run, path: str) -> list[OutputEntry]:
        """What is at a path and below it. Raises CallError when there is nothing."""

    def storage(self, run: Run) -> str | None:
        """The remote storage that the files were pushed to."""

    def look(self, run: Run, path: str) -> tuple[Preview, int]:
        """What a file is, and its size. Raises CallError."""

    def take(self, run: Run, path: str, target: Path, *, force: bool, progress: Progress) -> DownloadResult:
        """Copies it, checked by its digest. Raises CallError."""


class RunLogs(Protocol):
    """What replicas printed."""

    def voices(self, run: Run) -> list[LogSource]: ...

    def lines(
        self, run: Run, voices: Sequence[LogSource], attempt: int, tail: int | None, *, fold: bool
    ) -> Iterator[LogLine]:
        """In the order of time; `tail`: at least the last so many, where what many said counts as one with `fold`."""

    def follow(
        self,
        run: Run,
        voices: Sequence[LogSource],
        attempt: int | None,
        tail: int | None,
        pause: Callable[[float], bool],
    ) -> Generator[LogBatch, None, None]:
        """What comes until the run is over, or `pause` answers False. `pause` waits for so many seconds."""

    def error(self, run: Run, voices: Sequence[LogSource], attempt: int) -> FirstError:
        """Who failed first, and the lines that tell why."""


class RunActions(Protocol):
    """What can be done to runs."""

    def submit(self, submission: Submission, *, quiet: bool) -> Run:
        """From then on signals are held, until somebody attends the run. Raises SpecErrors, CallError."""

    def stop(self, runs: Sequence[Run], patience_s: float) -> list[Run]:
        """Ask them to end, and wait so long until they have."""

    def clone(self, run: Run, how: str) -> Run:
        """A new run of the same file: `restart`, or `copy`, with a copy of its outputs. Raises CallError."""

    def resume(self, run: Run) -> Run:
        """The next attempt of a run that is over. Raises CallError."""

    def remove(self, runs: Sequence[Run]) -> None:
        """For good. Raises CallError, before anything is removed, when one is not over."""

    def attend(self, run: Run, *, quiet: bool) -> Run:
        """Stay with it until it is over, and show what it says unless `quiet`. Ctrl-C stops it."""

    def leave(self, run: Run) -> None:
        """See to it that it goes on without us."""


class Workspace(Protocol):
    """One of them, to be closed. Every method may raise CallError and StoreError."""

    @property
    def rows(self) -> RunQueries: ...
    @property
    def files(self) -> RunFiles: ...
    @property
    def logs(self) -> RunLogs: ...
    @property
    def acts(self) -> RunActions: ...

    @property
    def server(self) -> str | None:
        """Its address; None for the home of this machine."""

    def series(self, run: Run) -> SeriesReader: ...

    def progress(self, run: Run) -> RunProgress:
        """How far the replicas of the newest attempt are."""

    def events(self, run: Run) -> list[RunEvent]: ...

    def frame(self) -> ActivitySnapshot:
        """What `top` shows, at this moment."""

    def attended(self) -> AbstractContextManager[Callable[[], object]]:
        """Within it, what is to be called every now and then, so that runs go on while somebody watches them."""

    def artifacts_of(self, project: str, most: int) -> list[Artifact]:
        """What all runs of a project kept on purpose."""

    def sharers(self, artifacts: Sequence[Artifact]) -> Mapping[str, Sequence[str]] | None:
        """The runs that have the same contents, by digest. None: the place does not tell."""

    def waits_for(self, run: Run) -> str | None:
        """What a run waits for in the queue of a cluster, in words."""

    def lies_in(self, run: Run) -> Mapping[str, str]:
        """Where the run is: its folder, and the packages that were installed for it; or its server."""

    def close(self) -> None: ...


@contextmanager
def open_workspace(*, settled: bool = True, quiet: bool = False) -> Iterator[Workspace]:
    """The place that is meant. `settled`: what is shown must be true, so runs are looked at once when nobody does.
    Raises CallError."""
    found = selected_server()
    place: Workspace
    if found is None:
        from phalanx.cli.workspace.home import HomeWorkspace

        place = HomeWorkspace(settled=settled)
    else:
        from phalanx.cli.workspace.server import ServerWorkspace

        if not quiet:
            print_server(found.url)
        place = ServerWorkspace(found)
    try:
        yield place
    finally:
        place.close()


def selected_server() -> ServerChoice | None:
    """None: this machine. Raises CallError."""
    from phalanx.client.config import choose_server

    return choose_server(os.environ)


def print_server(url: str) -> None:
    """To people only: whose runs they are, so that nobody stops those of a cluster for their own."""
    import click

    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(click.style(f"on {url}", dim=True), err=True)


def require_local_home(what: str, *, also_after_login: bool = True) -> None:
    """Of what can only be done where the runs lie. A home that is named is what is meant. Raises CallError."""
    from phalanx.client.config import HOME, SERVER

    found = None if os.environ.get(HOME) else selected_server()
    if found is not None and (also_after_login or found.by == SERVER):
        how = f"unset {SERVER}" if found.by == SERVER else "`phalanx logout`"
        raise CallError(f"{what} on a home of this machine, not on {found.url}: name it with {HOME}, or {how} first")
