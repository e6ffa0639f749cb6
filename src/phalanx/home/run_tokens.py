"""How a run reaches the server of its home, if one is running: an address, and a token that grants access only to
itself.

<home>/server.json    the running server and its process; server-2.json… where a home has several
<home>/server.secret  the secret from which the tokens of runs are derived
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from phalanx.agent.processes import is_alive_here
from phalanx.atomic_files import write_new
from phalanx.errors import CallError
from phalanx.store import Run

PREFIX = "phr"
SECRET_BYTES = 32
MOST_SERVERS = 16  # per home


def server_environment(home: Path, run: Run, given: Mapping[str, str]) -> dict[str, str]:
    """Variables that make MLflow's client in a run log to this server; empty when no server is running, or when the
    user has set another."""
    if "MLFLOW_TRACKING_URI" in given:
        return {}
    url = server_url(home)
    if url is None:
        return {}
    return {
        "PHALANX_MLFLOW": f"{url}/tracked/{run.id}/{run.attempt}",  # the agent adds the replica
        "MLFLOW_TRACKING_TOKEN": run_token(home, run.id, run.attempt),
        "MLFLOW_RUN_ID": run.id,
        **dict.fromkeys(("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"), ""),  # it prefers them to a token
    }


def server_file(home: Path, number: int, kind: str = "json") -> Path:
    """The file of the server with this number, from 1 on: its address, or (`lock`) its lock."""
    return home / (f"server.{kind}" if number == 1 else f"server-{number}.{kind}")


def server_url(home: Path) -> str | None:
    """The address of a server of this home on this machine."""
    return next(server_urls(home), None)


def server_urls(home: Path) -> Iterator[str]:
    """All running servers. Files of killed servers are ignored: another program may use their port."""
    for number in range(1, MOST_SERVERS + 1):
        try:
            server = json.loads(server_file(home, number).read_bytes())
            if is_alive_here(server):
                yield str(server["url"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def run_token(home: Path, run_id: str, attempt: int) -> str:
    """The token with which one attempt of a run may write to itself, and to nothing else. Derived: always the same."""
    return f"{PREFIX}_{run_id}_{attempt}_{run_mac(server_secret(home), run_id, attempt)}"


def run_mac(secret: bytes, run_id: str, attempt: int) -> str:
    return hmac.new(secret, f"phalanx run token 1\n{run_id}\n{attempt}".encode(), hashlib.sha256).hexdigest()


def server_secret(home: Path) -> bytes:
    """Created once. Removing it invalidates every token of a run."""
    path = home / "server.secret"
    try:
        return _read_secret(path)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process was faster
            write_new(path, secrets.token_hex(SECRET_BYTES).encode())
        return _read_secret(path)


def _read_secret(path: Path) -> bytes:
    secret = path.read_bytes().strip()
    if len(secret) < SECRET_BYTES:
        raise CallError(f"{path} is damaged: remove it to create a new one")
    return secret
