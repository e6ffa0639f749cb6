"""How a run reaches the server of its home, when there is one: an address, and a token that opens nothing but itself.

<home>/server.json    the server that is up, and its process; server-2.json… where a home has several
<home>/server.secret  what the tokens of runs are derived from
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
MOST_SERVERS = 16  # of one home


def server_environment(home: Path, run: Run, given: Mapping[str, str]) -> dict[str, str]:
    """What makes MLflow's client in a run log to us; nothing when no server is up, or when the user has another."""
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
    """Of the server of this number, from 1 on: where it is, or (`lock`) what it holds."""
    return home / (f"server.{kind}" if number == 1 else f"server-{number}.{kind}")


def server_url(home: Path) -> str | None:
    """Where a server of this home is that runs on this machine."""
    return next(server_urls(home), None)


def server_urls(home: Path) -> Iterator[str]:
    """Of all of them. What one that was killed has left counts for nothing: another program may have its port."""
    for number in range(1, MOST_SERVERS + 1):
        try:
            server = json.loads(server_file(home, number).read_bytes())
            if is_alive_here(server):
                yield str(server["url"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def run_token(home: Path, run_id: str, attempt: int) -> str:
    """What lets one attempt of a run write to itself, and to nothing else. Derived: asked again, it is the same."""
    return f"{PREFIX}_{run_id}_{attempt}_{run_mac(server_secret(home), run_id, attempt)}"


def run_mac(secret: bytes, run_id: str, attempt: int) -> str:
    return hmac.new(secret, f"phalanx run token 1\n{run_id}\n{attempt}".encode(), hashlib.sha256).hexdigest()


def server_secret(home: Path) -> bytes:
    """Made once. Whoever removes it makes every token of a run invalid."""
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
        raise CallError(f"{path} is damaged: remove it, and a new one is made")
    return secret
