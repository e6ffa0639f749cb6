"""Jupyter as the command of a replica: on a unix socket or on loopback, with a token that only its user can read.

The address and the token are in files of a hidden folder that only the user can read; neither is in the plan, in the
arguments of a process, or in a log. Jupyter runs the program that it finds: settings of the user that would open it to
others are overridden, and a server that answers without a token is ended. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from phalanx import run_paths
from phalanx.agent.interactive.no_notebook import NoNotebook
from phalanx.atomic_files import write_atomic

VARIABLE = "PHALANX_NOTEBOOK"  # the file with the address and the token
HOST = "127.0.0.1"
AUTOSAVE_S = 30  # between two saves of an open page; Jupyter's default is 120
LONGEST_SOCKET = 100  # bytes of a path that a socket and ssh accept
ANSWER_S = 2.0
NOT_FOUND = 127  # exit code of a command that could not be started
MISSING = "phalanx: Jupyter is not installed where this notebook runs: `pip install jupyterlab`"
OPEN = "phalanx: ended, because Jupyter answered without a token: remove settings of `IdentityProvider` from ~/.jupyter"
_CONFIGURED = ("jupyter_server_config", "jupyter_lab_config", "jupyter_notebook_config")
_AUTOSAVE = {"@jupyterlab/docmanager-extension:plugin": {"autosaveInterval": AUTOSAVE_S}}


class NotebookServer(NoNotebook):
    """The settings of a server that is to be started, and whether it answers."""

    def __init__(self, folder: str, environment: dict[str, str], page: str, port: int | None) -> None:
        """`folder`: of the attempt. Without `port` it listens on a socket, if the folder can have one. Adds variables
        of Jupyter to `environment`. Raises OSError."""
        self.folder = os.path.join(folder, run_paths.NOTEBOOK)
        self.token = os.urandom(24).hex()
        for private in (self.folder, os.path.join(self.folder, "labconfig")):
            os.makedirs(private, mode=0o700, exist_ok=True)
        self.elsewhere: str | None = None  # a folder of the node
        self.socket = None if port is not None else self._find_socket()
        self.port = None if self.socket is not None else port or _free_port()
        # Options of the command line: no file may override them.
        self.options = [f"--ServerApp.sock={self.socket}", "--ServerApp.sock_mode=0600"]
        if self.socket is None:
            self.options = [f"--ServerApp.ip={HOST}", f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"]
        self.page = page
        self.is_answering = False
        self._write_settings()
        environment["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
            filter(None, (self.folder, environment.get("JUPYTER_CONFIG_PATH")))
        )
        environment[VARIABLE] = os.path.join(self.folder, run_paths.NOTEBOOK_ADDRESS)
        for name in ("JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE"):
            environment.pop(name, None)

    def _find_socket(self) -> str | None:
        """In the folder of the attempt or, where that cannot have one, in a private one of the node."""
        path = os.path.join(self.folder, "socket")
        if _takes_socket(path):
            return path
        from tempfile import mkdtemp

        self.elsewhere = mkdtemp(prefix="phalanx-")
        path = os.path.join(self.elsewhere, "socket")
        return path if _takes_socket(path) else None

    def _write_settings(self) -> None:
        settings = {
            "ServerApp": {"ip": HOST, "open_browser": False, "allow_root": os.geteuid() == 0},  # as in most pods
            "IdentityProvider": {"token": self.token},
        }
        for name in _CONFIGURED:
            _write(os.path.join(self.folder, f"{name}.json"), settings)
        _write(os.path.join(self.folder, "labconfig", "default_setting_overrides.json"), _AUTOSAVE)

    def check(self, say: Callable[[str], None]) -> bool:
        """Look once more whether it answers, until it does. False if it answers without a token."""
        if self.is_answering:
            return True
        status = self._status_without_token()
        if status is None:
            return True
        if status == 200:
            say(OPEN)
            return False
        self.is_answering = True
        address = {"socket": self.socket, "port": self.port, "page": self.page, "token": self.token}
        _write(os.path.join(self.folder, run_paths.NOTEBOOK_ADDRESS), address)
        return True

    def _status_without_token(self) -> int | None:
        """The status of a request that needs a token; None while nothing answers."""
        from http.client import HTTPException, HTTPResponse

        family = socket.AF_INET if self.socket is None else socket.AF_UNIX
        try:
            with socket.socket(family, socket.SOCK_STREAM) as line:
                line.settimeout(ANSWER_S)
                line.connect((HOST, self.port) if self.socket is None else self.socket)
                line.sendall(b"GET /api/contents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = HTTPResponse(line)
                answer.begin()
                return answer.status
        except (OSError, HTTPException):
            return None

    def close(self, code: int | None, say: Callable[[str], None]) -> None:
        """Remove everything with the token."""
        import shutil

        for folder in filter(None, (self.folder, self.elsewhere)):
            shutil.rmtree(folder, ignore_errors=True)
        if code == NOT_FOUND:
            say(MISSING)


def read_address(text: bytes) -> Mapping[str, Any]:
    """The file of a server that answers. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("token"), str):
        raise ValueError("not the address of a notebook")
    return found


def _takes_socket(path: str) -> bool:
    """Some paths are too long, and some filesystems have no sockets."""
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.bind(path)
        os.unlink(path)
    except OSError:
        return False
    return True


def _write(path: str, content: Mapping[str, Any]) -> None:
    write_atomic(path, json.dumps(content).encode(), sync=False)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
