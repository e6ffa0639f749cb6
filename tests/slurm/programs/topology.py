"""Everybody listens at their own address and calls all others at theirs, then writes down who answered and where.

Servers never end by themselves; the others do when each of them has called everyone.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

PATIENCE_S = 60.0
NAME, ROLE, INDEX = os.environ["PHALANX_REPLICA"], os.environ["PHALANX_ROLE"], int(os.environ["PHALANX_INDEX"])
CLUSTER: dict[str, list[str]] = json.loads(os.environ["PHALANX_CLUSTER"])
OUTPUTS = Path(os.environ["PHALANX_OUTPUTS"])
SERVERS = ("ps", "server")


def serve() -> None:
    listener = socket.create_server(("", int(CLUSTER[ROLE][INDEX].rpartition(":")[2])), backlog=64)
    while True:
        caller, _ = listener.accept()
        caller.sendall(NAME.encode())
        caller.close()


def call(address: str) -> str:
    """Who answers there."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection((host, int(port)), 10) as link:
                return link.makefile().read()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    threading.Thread(target=serve, daemon=True).start()
    answers = {f"{role}-{n}": call(place) for role, places in CLUSTER.items() for n, place in enumerate(places)}
    fields = {"answers": answers, "host": socket.gethostname(), "environment": dict(os.environ)}
    part = OUTPUTS / f".{NAME}"
    part.write_text(json.dumps(fields))
    part.rename(OUTPUTS / f"{NAME}.json")
    print(f"{NAME} has called everyone", flush=True)
    while ROLE in SERVERS:
        time.sleep(1)
    while not all((OUTPUTS / f"{name}.json").exists() for name in answers):
        time.sleep(0.05)


main()
