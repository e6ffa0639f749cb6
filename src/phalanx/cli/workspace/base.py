"""The interface through which verbs access runs, in the local home or on a server.

`open_workspace` chooses: the server of PHALANX_SERVER; else the local home if PHALANX_HOME is set or the process is
part of a run; else the server of `phalanx login`; else ~/.phalanx.
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
    """Queries on runs, with the methods of `Store`. Methods raise CallError for an unknown run."""

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
    """The series of a run, with the methods of `RunSeries`."""

    def names(self) -> list[str]: ...
    def replicas(self, metric: str) -> list[str]: ...
    def summaries(self) -> dict[str, Summary]: ...
    def series(self, metric: str, replica: str | None = ...) -> list[Series]: ...
    def over_ranks(self, metric: str, count: int | None = ...) -> list[Spread]: ...
    def buckets(
        self, metric: str, count: int, replica: str | None = ..., first: int | None = ..., last: int | None = ...
    ) -> dict[str, list[Bucket]]: ...


class RunFiles(Protocol):
    """The files of runs."""

    def entries(self, run: Run, path: str) -> list[OutputEntry]:
        """The files and folders at a path and below it. Raises CallError if there are none."""

    def storage(self, run: Run) -> str | None:
        """The remote storage that the files were pushed to."""

    def look(self, run: Run, path: str) -> tuple[Preview, int]:
        """The preview of a file, and its size. current. Raises CallError."""

    def take(self, run: Run, path: str, target: Path, *, force: bool, progress: Progress) -> DownloadResult:
        """Download a file or folder and verify its digest. current. Raises CallError."""


class RunLogs(Protocol):
    """The logs of replicas."""

    def sources(self, run: Run) -> list[LogSource]: ...

    def lines(
        self, run: Run, sources: Sequence[LogSource], attempt: int, tail: int | None, *, fold: bool
    ) -> Iterator[LogLine]:
        """The lines in order of time; `tail`: at least the last ones, where `fold` counts identical lines once."""

    def follow(
        self,
        run: Run,
        sources: Sequence[LogSource],
        attempt: int | None,
        tail: int | None,
        pause: Callable[[float], bool],
    ) -> Generator[LogBatch, None, None]:
        """What comes until the run is over, or `pause` answers False. `pause` waits for so many seconds."""

    def error(self, run: Run, sources: Sequence[LogSource], attempt: int) -> FirstError:
        """The replica that failed first, and the lines that show why."""


class RunActions(Protocol):
    """Actions on runs."""

    def submit(self, submission: Submission, *, quiet: bool) -> Run:
        """Submit a run, and block signals until it is watched. Raises SpecErrors, CallError."""

    def stop(self, runs: Sequence[Run], patience_s: float, each: Callable[[Sequence[Run]], None]) -> list[Run]:
        """Stop runs, and wait up to `patience_s` for them to end. `each` is called with them while it waits."""

    def clone(self, run: Run, how: str) -> Run:
        """A new run of the same file: `restart`, or `copy`, with a copy of its outputs. current. Raises CallError."""

    def resume(self, run: Run) -> Run:
        """Start the next attempt of a finished run. current. Raises CallError."""

    def remove(self, runs: Sequence[Run]) -> None:
        """Delete runs. Raises CallError before deleting anything if one has not finished."""

    def attend(self, run: Run, *, quiet: bool) -> Run:
        """Watch a run until it finishes, and print its logs unless `quiet`. Ctrl-C stops the run."""

    def leave(self, *runs: Run) -> None:
        """Make sure that the runs continue without this process."""


class Workspace(Protocol):
    """A local home or a server, to be closed after use. Every method may raise CallError and StoreError."""

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
        """The address of the server; None for a local home."""

    def series(self, run: Run) -> SeriesReader: ...

    def progress(self, run: Run) -> RunProgress:
        """How far the replicas of the newest attempt are."""

    def events(self, run: Run) -> list[RunEvent]: ...

    def frame(self) -> ActivitySnapshot:
        """The current snapshot for `top`."""

    def attended(self) -> AbstractContextManager[Callable[[], object]]:
        """A function to call regularly within the context, so that runs proceed while they are watched."""

    def artifacts_of(self, project: str, most: int) -> list[Artifact]:
        """The artifacts of all runs of a project."""

    def runs_with_content(self, artifacts: Sequence[Artifact]) -> Mapping[str, Sequence[str]] | None:
        """The runs that have the same contents, by digest; None if unknown."""

    def waits_for(self, run: Run) -> str | None:
        """Why a run is waiting in the queue of a cluster, as text."""

    def lies_in(self, run: Run) -> Mapping[str, str]:
        """The location of a run: its folder and the packages installed for it, or its server."""

    def close(self) -> None: ...


@contextmanager
def open_workspace(*, settled: bool = True, quiet: bool = False) -> Iterator[Workspace]:
    """The selected workspace. `settled`: first run one scheduler pass if no other process does, so that statuses are
    current. current. Raises CallError."""
    found = selected_server()
    workspace: Workspace
    if found is None:
        from phalanx.cli.workspace.home import HomeWorkspace

        workspace = HomeWorkspace(settled=settled)
    else:
        from phalanx.cli.workspace.server import ServerWorkspace

        if not quiet:
            print_server(found.url)
        workspace = ServerWorkspace(found)
    try:
        yield workspace
    finally:
        workspace.close()


def selected_server() -> ServerChoice | None:
    """The selected server; None for the local home. current. Raises CallError."""
    from phalanx.client.config import choose_server

    return choose_server(os.environ)


def print_server(url: str) -> None:
    """Print the server on a terminal, so that users do not mistake its runs for local ones."""
    import click

    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(click.style(f"on {url}", dim=True), err=True)


def require_local_home(what: str, *, also_after_login: bool = True) -> None:
    """Refuse an action that needs a local home while a server is selected. PHALANX_HOME overrides the server. Raises
    CallError."""
    from phalanx.client.config import HOME, SERVER

    found = None if os.environ.get(HOME) else selected_server()
    if found is not None and (also_after_login or found.by == SERVER):
        how = f"unset {SERVER}" if found.by == SERVER else "run `phalanx logout`"
        raise CallError(f"{what} only in a local home, not on {found.url}: set {HOME}, or {how} first")
