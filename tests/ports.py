"""Ports for servers that a test starts later."""

from __future__ import annotations

import random
import socket

# Below the range from which the kernel gives ports to connections: those of other tests would take it meanwhile.
LOWEST, HIGHEST = 20_000, 32_000


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that nobody listens on."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(LOWEST, HIGHEST)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def free_port() -> int:
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
