"""Selects where verbs find runs: in the local home or on a server. Both have the same methods.

`open_workspace` chooses: the server of PHALANX_SERVER; else the local home if PHALANX_HOME is set or the process is
part of a run; else the server of `phalanx login`; else ~/.phalanx.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.home import HomeFiles, HomeLogs, HomeWorkspace
    from phalanx.cli.workspace.server import ServerFiles, ServerLogs, ServerRows, ServerWorkspace
    from phalanx.client.config import ServerChoice
    from phalanx.client.series import RemoteSeries
    from phalanx.store import Run, Store
    from phalanx.store.series.run_series import RunSeries

    Workspace = HomeWorkspace | ServerWorkspace
    RunQueries = Store | ServerRows
    SeriesReader = RunSeries | RemoteSeries
    RunFiles = HomeFiles | ServerFiles
    RunLogs = HomeLogs | ServerLogs


@contextmanager
def open_workspace(*, settled: bool = True, quiet: bool = False) -> Iterator[Workspace]:
    """The selected workspace. `settled`: first run one scheduler pass if no other process does, so that statuses are
    current. Raises CallError."""
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


def find_run(workspace: Workspace, text: str) -> Run:
    """The run that the user means: see `phalanx.store.run_choice`. Says so when others have the same name. Raises
    CallError."""
    from phalanx.store.query import quoted

    found = workspace.rows.find(text)
    if found.name == text and found.id != text:
        count = workspace.rows.count(f"name:{quoted(text)}")
        if count > 1:
            import click

            from phalanx.cli.render.output import printable

            click.echo(f"{count} runs are named {printable(text)}: using the newest, {found.id}", err=True)
    return found


def selected_server() -> ServerChoice | None:
    """The selected server; None for the local home. Raises CallError."""
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
