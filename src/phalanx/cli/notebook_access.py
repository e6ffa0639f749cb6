"""How a user reaches a running notebook: its address and token, and the tunnel to it."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from phalanx import run_paths
from phalanx.agent.interactive.notebook import HOST, VARIABLE, read_address
from phalanx.backends.contract import LOCAL_BACKENDS, Connections, TunnelRequest, TunnelStep
from phalanx.cli.commands.ui import tunnel_line
from phalanx.cli.replica_entry import entry_command, running_replica
from phalanx.errors import CallError

if TYPE_CHECKING:
    from phalanx.backends.contract import Engine
    from phalanx.cli.workspace.home import HomeWorkspace
    from phalanx.store import Run

READ_S = 60.0  # to read a file in a pod


class NotebookAccess(NamedTuple):
    """`url`: with the token, which is shown to the user of the notebook only. `steps`: what to run first."""

    url: str
    steps: tuple[TunnelStep, ...] = ()


def find_address(workspace: HomeWorkspace, run: Run) -> Mapping[str, Any] | None:
    """The address and the token of a running notebook; None while it does not answer yet. Raises CallError."""
    from phalanx import backends

    attempt_folder, name = running_replica(workspace, run, None)
    if run.backend in LOCAL_BACKENDS or backends.find(run.backend).shares_files:
        path = attempt_folder.folder(name) / run_paths.NOTEBOOK / run_paths.NOTEBOOK_ADDRESS
        return _decoded(path.read_bytes()) if path.exists() else None
    read = ["sh", "-c", f'cat "${VARIABLE}"']
    command = entry_command(workspace, run, attempt_folder, name, read, is_terminal=False)
    try:
        done = subprocess.run(command or (), stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise CallError(f"cannot read the address of the notebook: {fault}") from None
    return _decoded(done.stdout) if done.returncode == 0 else None


def _decoded(text: bytes) -> Mapping[str, Any] | None:
    try:
        return read_address(text)
    except ValueError:
        return None


def access_to(
    workspace: HomeWorkspace, run: Run, found: Mapping[str, Any], port: int, *, is_reverse: bool
) -> NotebookAccess:
    """`port`: of the user's machine, where a tunnel is needed. Raises CallError."""
    from phalanx import backends

    attempt_folder, name = running_replica(workspace, run, None)
    engine: Engine | None = None
    with Connections() as connections:
        if run.backend not in LOCAL_BACKENDS:
            backend = backends.find(run.backend)
            engine = backend.engine(backend.target_of_run(workspace.home.path, attempt_folder.run_folder), connections)
        if engine is None:
            return _access_here(found)
        address = found["socket"] or f"{HOST}:{found['port']}"
        steps = engine.tunnel(attempt_folder, name, TunnelRequest(address, port, _login(), is_reverse))
    return NotebookAccess(_url(port, found), tuple(steps))


def _access_here(found: Mapping[str, Any]) -> NotebookAccess:
    port = int(found["port"])
    line = tunnel_line(f"http://{HOST}:{port}", os.environ, socket.gethostname())
    return NotebookAccess(_url(port, found), () if line is None else (TunnelStep("your machine", line),))


def _url(port: int, found: Mapping[str, Any]) -> str:
    return f"http://{HOST}:{port}{found['page']}?{urlencode({'token': found['token']})}"


def _login() -> str:
    """This machine, as the user reaches it with ssh: by the address that the user came to, else by its name."""
    came = os.environ.get("SSH_CONNECTION", "").split()
    named = socket.getfqdn()
    there = socket.gethostname() if named.startswith("localhost") else named
    if len(came) == 4 and not came[2].startswith(("127.", "::1")):
        there = came[2]
    return f"{os.environ.get('USER') or getpass.getuser()}@{there}"
