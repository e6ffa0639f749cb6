"""Listening sockets, and the address under which others reach them."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from phalanx.errors import CallError

BACKLOG = 512
LOOK_S = 0.1


@contextmanager
def bound(host: str, port: int, count: int = 1, patience_s: float = 0.0) -> Iterator[list[socket.socket]]:
    """Listening sockets of one address, one for each process: the kernel divides new connections among them. Where it
    does not (all but Linux), the processes share one. Raises CallError that states the reason for a failure, after
    `patience_s` if the port is in use."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise CallError(f"`{host}` is not an address of this machine") from None
    with ExitStack() as opened:

        def make(place: tuple[object, ...], *, is_one_of_many: bool) -> socket.socket:
            listening = opened.enter_context(socket.socket(family, kind, proto))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_one_of_many:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind(place)
            listening.listen(BACKLOG)
            return listening

        deadline = time.monotonic() + patience_s
        while True:
            try:
                first = make(address, is_one_of_many=False)  # fails if any other program has the port
                break
            except (OSError, OverflowError) as fault:
                if getattr(fault, "errno", None) != errno.EADDRINUSE or time.monotonic() >= deadline:
                    raise CallError(_why_not(host, port, fault)) from None
                time.sleep(LOOK_S)
        if count == 1 or sys.platform != "linux":
            yield [first] * count
            return
        place = first.getsockname()
        first.close()
        try:
            several = [make(place, is_one_of_many=True) for _ in range(count)]
        except OSError as fault:
            raise CallError(_why_not(host, port, fault)) from None
        yield several


def _why_not(host: str, port: int, fault: Exception) -> str:
    number = getattr(fault, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: choose another with --port, or any free one with --port 0"
    if number == errno.EACCES:
        return f"no permission to use port {port}: choose one from 1024 on"
    if number == errno.EADDRNOTAVAIL:
        return f"`{host}` is not an address of this machine"
    return f"cannot listen on {host}, port {port}: {fault}"


def url_of(host: str, listening: socket.socket) -> str:
    """The address under which processes on this machine reach the server."""
    address, port = listening.getsockname()[:2]
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        host = "[::1]" if ":" in address else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
