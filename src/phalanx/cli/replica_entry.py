"""Entering a running replica: `phalanx shell` and `phalanx exec` become the command that does it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from phalanx.cli.workspace.base import find_run, open_workspace, selected_server
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.cli.workspace.home import HomeWorkspace
    from phalanx.home.attempts import AttemptFolder
    from phalanx.store import Run


def enter_replica(run: str, replica: str | None, argv: Sequence[str], verb: str, *, quiet: bool) -> NoReturn:
    """Become a command with the environment of a replica, or an interactive shell without one. Raises CallError."""
    require_this_machine(verb)
    with open_workspace(quiet=quiet) as workspace:
        assert workspace.server is None
        found = find_run(workspace, run)
        attempt_folder, name = running_replica(workspace, found, replica)
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        command = entry_command(workspace, found, attempt_folder, name, argv, is_terminal=is_terminal)
    sys.stdout.flush()
    if command is None:
        _enter_here(attempt_folder, name, argv)
    try:
        os.execvp(command[0], command)
    except OSError as fault:
        raise CallError(f"cannot start {command[0]}: {fault.strerror}") from None


def require_this_machine(verb: str) -> None:
    """A server runs no commands of callers in its runs. Raises CallError."""
    server = selected_server()
    if server is not None:
        raise CallError(
            f"`phalanx {verb}` is not offered over a server: log in to the machine that serves {server.url}, and run "
            "it there as the user of that server, with PHALANX_HOME set to its home"
        )


def running_replica(workspace: HomeWorkspace, run: Run, replica: str | None) -> tuple[AttemptFolder, str]:
    """The replica that is meant, of a run that runs; the first one by default. Raises CallError."""
    from phalanx.home.attempts import AttemptFolder
    from phalanx.logs.replica_choice import choose
    from phalanx.store.kinds import WHOLES
    from phalanx.store.statuses import Status
    from phalanx.tracking.external_folder import BACKEND as OUTSIDE

    if run.kind in WHOLES:
        raise CallError(f"{run.id} is a {run.kind}: name one of its runs, see `phalanx ps -q group:{run.id}`")
    if run.backend == OUTSIDE:
        raise CallError(f"run {run.id} was not started by Phalanx, which cannot enter its process")
    sources = workspace.logs.sources(run)
    chosen = choose(sources, [replica] if replica is not None else [])
    if replica is not None and len(chosen) > 1:
        raise CallError(f"`{replica}` means {len(chosen)} replicas: name one, such as {chosen[0].name}")
    if run.status != Status.RUNNING:
        raise CallError(f"run {run.id} is not running: it is {run.status} ({run.reason})")
    name = min(chosen, key=lambda source: (source.rank is None, source.rank)).name
    return AttemptFolder(workspace.home.run(run.id).path, run.id, run.attempt, (name,)), name


def entry_command(
    workspace: HomeWorkspace,
    run: Run,
    attempt_folder: AttemptFolder,
    name: str,
    argv: Sequence[str],
    *,
    is_terminal: bool,
) -> list[str] | None:
    """The command that enters a replica on the machines of its backend; None if it is a process of this machine.
    Raises CallError."""
    from phalanx import backends
    from phalanx.backends.contract import LOCAL_BACKENDS, Connections

    if run.backend in LOCAL_BACKENDS:
        return None
    backend = backends.find(run.backend)
    with Connections() as connections:
        engine = backend.engine(backend.target_of_run(workspace.home.path, attempt_folder.run_folder), connections)
        return None if engine is None else engine.entry(attempt_folder, name, argv, is_terminal=is_terminal)


def _enter_here(attempt_folder: AttemptFolder, name: str, argv: Sequence[str]) -> NoReturn:
    from phalanx.agent.interactive.entry import NotEnterable, enter, entry_of
    from phalanx.home.attempts import read_facts

    try:
        enter(entry_of(read_facts(attempt_folder), name), name, argv)
    except NotEnterable as fault:
        raise CallError(f"{name} of run {attempt_folder.run_id} cannot be entered: {fault}") from None
    except OSError as fault:
        raise CallError(f"cannot start {argv[0] if argv else 'a shell'}: {fault.strerror or fault}") from None
