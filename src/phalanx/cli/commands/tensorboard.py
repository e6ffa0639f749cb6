"""phalanx tensorboard"""

from __future__ import annotations

import getpass
import os
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from phalanx import run_paths
from phalanx.cli.commands.ui import tunnel_line
from phalanx.cli.options import json_option
from phalanx.cli.render.output import print_json, printable
from phalanx.cli.workspace.base import find_run, open_workspace
from phalanx.errors import CallError
from phalanx.store.kinds import WHOLES

if TYPE_CHECKING:
    from phalanx.boards.board import Board
    from phalanx.boards.log_folder import RunData, SeriesReader
    from phalanx.cli.workspace.base import Workspace
    from phalanx.cli.workspace.server import ServerWorkspace
    from phalanx.store import Run

LARGEST_DOWNLOAD = 256 << 20  # event files of one run on a server


@click.command("tensorboard")
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option(
    "-q", "--query", metavar="QUERY", help="Show the runs that match, as in `phalanx ps -q`; also later ones."
)
@click.option("--group", metavar="GROUP", help="Show the runs of a group; also later ones.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Maximum number of matching runs.",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Port of TensorBoard; 0 picks a free one.")
@click.option(
    "--idle", default="30m", show_default=True, metavar="TIME", help="Stop after this time without a visitor or a run."
)
@click.option("--all-replicas", is_flag=True, help="Show every replica of a run, not only the first.")
@json_option
def command(
    runs: tuple[str, ...],
    query: str | None,
    group: str | None,
    limit: int,
    port: int,
    idle: str,
    all_replicas: bool,
    as_json: bool,
) -> None:
    """Show runs in TensorBoard, side by side.

    RUN is an id, a name (the newest run of that name), or the first characters of an id. A group stands for its runs.
    Runs are named by the params that differ. TensorBoard must be installed (`pip install tensorboard`); it listens on
    127.0.0.1 only, where every user of this machine can reach it. Ctrl-C stops it.
    """
    from phalanx.boards.board import Board
    from phalanx.boards.program import find_program
    from phalanx.spec.quantities import seconds

    idle_s = seconds(idle)
    if idle_s is None or idle_s <= 0:
        raise CallError(f'--idle {idle!r}: expected seconds, or a duration such as "30m" or "2h"')
    if not runs and query is None and group is None:
        raise CallError("name runs, or use a query: `phalanx tensorboard -q 'tags:nightly'`, or --group ID")
    program = find_program(os.environ)
    stopped = _stop_on_signals()
    with open_workspace(quiet=as_json) as workspace, workspace.attended() as turn:
        choose = _choice(workspace, runs, query, group, limit, turn)
        if not choose():
            raise CallError("No matching runs.")
        with (
            TemporaryDirectory(prefix="phalanx-downloads-") as downloads,
            Board(choose, _data_of(workspace, downloads), idle_s=idle_s, all_replicas=all_replicas) as board,
        ):
            _announce(board, board.start(program, port or None), as_json=as_json)
            why = board.follow(lambda pause_s: not stopped.wait(pause_s))
    if not as_json:
        click.echo(f"stopped: idle for {idle}" if why == "idle" else "stopped", err=True)


def _stop_on_signals() -> threading.Event:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def _choice(
    workspace: Workspace,
    named: Sequence[str],
    query: str | None,
    group: str | None,
    limit: int,
    turn: Callable[[], object],
) -> Callable[[], list[Run]]:
    """A function that returns the chosen runs as they are now. Raises CallError."""
    found = [find_run(workspace, text) for text in named]
    groups = [run for run in found if run.kind in WHOLES]
    if group is not None:
        groups.append(find_run(workspace, group))
        if groups[-1].kind not in WHOLES:
            raise CallError(f"{groups[-1].id} is a run, not a group: leave out --group")
    single = [run.id for run in found if run.kind not in WHOLES]
    queries = [*(f"group:{one.id}" for one in groups), *([query] if query is not None else [])]

    def choose() -> list[Run]:
        turn()
        chosen = [workspace.rows.find(run_id) for run_id in single]
        for text in queries:
            chosen += [run for run in workspace.rows.runs(text, "created_at", limit) if run.kind not in WHOLES]
        return list({run.id: run for run in chosen}.values())

    return choose


def _data_of(workspace: Workspace, downloads: str) -> Callable[[Run], RunData]:
    if workspace.server is None:
        from phalanx.boards.log_folder import HomeRunData

        home = workspace.home
        return lambda run: HomeRunData(home.run(run.id).path / run_paths.OUTPUTS, partial(workspace.series, run))
    return partial(ServerRunData, workspace, Path(downloads))


class ServerRunData:
    """The data of a run on a server: the event files of a finished run are downloaded; else its series are read."""

    def __init__(self, workspace: ServerWorkspace, folder: Path, run: Run) -> None:
        """`folder`: for downloads."""
        self.workspace = workspace
        self.folder = folder
        self.run = run

    def event_folder(self) -> Path | None:
        from phalanx.artifacts.trees import no_progress
        from phalanx.path_patterns import is_event_file

        if not self.run.is_done:
            return None
        listed = self.workspace.files.entries(self.run, run_paths.OUTPUTS) if self._has_outputs() else []
        files = [entry for entry in listed if entry.kind == "file" and is_event_file(entry.path)]
        if not files or sum(entry.size for entry in files) > LARGEST_DOWNLOAD:
            return None
        folder = self.folder / self.run.id
        for entry in files:
            target = folder / Path(entry.path).parent
            if not target.resolve().is_relative_to(self.folder.resolve()):
                continue  # a server cannot write elsewhere
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.workspace.files.take(self.run, entry.path, target, force=True, progress=no_progress)
        return folder / run_paths.OUTPUTS

    def _has_outputs(self) -> bool:
        return any(entry.path == run_paths.OUTPUTS for entry in self.workspace.files.entries(self.run, ""))

    def series(self) -> SeriesReader:
        return self.workspace.series(self.run)


def _announce(board: Board, url: str, *, as_json: bool) -> None:
    rows = [{"id": run.id, "name": board.folder.names[run.id]} for run in board.runs]
    tunnel = _tunnel(url)
    if as_json:
        answer: dict[str, Any] = {"ok": True, "url": url, "ssh": tunnel, "runs": rows}
        print_json(answer)
        return
    for row in rows[:20]:
        click.echo(f"  {row['id']}  {printable(row['name'])}")
    if len(rows) > 20:
        click.echo(f"  and {len(rows) - 20} more")
    click.echo(f"TensorBoard: {click.style(url, bold=True)}")
    click.echo(f"from another machine: {tunnel}")
    click.echo("Ctrl-C stops it")


def _tunnel(url: str) -> str:
    """The ssh command for the user's machine: by the address that the user came from, else by the name of this host."""
    found = tunnel_line(url, os.environ, socket.gethostname())
    if found is not None:
        return found
    port = urlsplit(url).port
    return f"ssh -N -L {port}:127.0.0.1:{port} {shlex.quote(f'{getpass.getuser()}@{socket.gethostname()}')}"
