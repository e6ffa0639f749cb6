"""Connections into the network of a pod, as a kubelet passes them on for `kubectl port-forward`."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.kubernetes.spdy import LAST, PING, RESET, SYN_STREAM, Line, Spdy

SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"
)
NETWORK = 0x40000000  # CLONE_NEWNET
PIECE = 65_536


def serve(line: Line, incoming: IO[bytes], network: Path) -> None:
    """Each connection is a stream of data, after one of errors with the same id. `network`: the namespace."""
    line.sendall(SWITCHING)
    spdy = Spdy(line, incoming)
    errors: dict[str, int] = {}
    open_: dict[int, socket.socket] = {}
    while (frame := spdy.read()) is not None:
        if frame.kind == PING:
            spdy.echo(frame.data)
        elif frame.kind == SYN_STREAM:
            headers = spdy.headers(frame)
            spdy.accept(frame.stream)
            if headers["streamtype"] == "error":
                errors[headers["requestid"]] = frame.stream
                continue
            report = errors.pop(headers["requestid"])
            try:
                inside = connect(network, int(headers["port"]))
            except OSError as fault:
                spdy.send(report, f"cannot connect to port {headers['port']}: {fault}".encode(), is_last=True)
                spdy.send(frame.stream, b"", is_last=True)
                continue
            open_[frame.stream] = inside
            threading.Thread(target=_forward, args=(spdy, frame.stream, report, inside), daemon=True).start()
        elif frame.stream in open_:
            with suppress(OSError):
                if frame.kind == 0 and frame.data:
                    open_[frame.stream].sendall(frame.data)
                if frame.kind == RESET or frame.flags & LAST:
                    open_.pop(frame.stream).shutdown(socket.SHUT_WR)
    for inside in open_.values():
        with suppress(OSError):
            inside.shutdown(socket.SHUT_RDWR)


def _forward(spdy: Spdy, stream: int, report: int, inside: socket.socket) -> None:
    with inside, suppress(OSError):
        while data := inside.recv(PIECE):
            spdy.send(stream, data)
    spdy.send(stream, b"", is_last=True)
    spdy.send(report, b"", is_last=True)


def connect(network: Path, port: int) -> socket.socket:
    """To loopback in another network. Raises OSError."""

    def there() -> socket.socket:
        with network.open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), NETWORK) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return socket.create_connection(("127.0.0.1", port), timeout=10)

    found = _in_thread(there)
    found.settimeout(None)
    return found


def _in_thread(act: Callable[[], socket.socket]) -> socket.socket:
    """In a thread of its own, which keeps the network that it entered until it ends."""
    found: list[socket.socket | OSError] = []

    def run() -> None:
        try:
            found.append(act())
        except OSError as fault:
            found.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (only,) = found
    if isinstance(only, OSError):
        raise only
    return only
