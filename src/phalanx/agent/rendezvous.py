"""A key-value store over HTTP, through which Horovod's ranks exchange addresses before they connect over Gloo.

Normally horovodrun serves it. Where ranks are started separately, this server runs beside the first replica until the
last has ended. `GET`, `PUT` and `DELETE` of `/scope/key`. A scope is emptied once all its members sent DELETE, so
that a second `init` after `shutdown` finds no old values. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BYTES = 1 << 20  # of a value; an address takes a few hundred
MOST_KEYS = 1_000_000
IDLE_S = 60.0


class KeyValueStore:
    """Values by scope and key. `sizes`: member counts of the scopes that are emptied when all members are done."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.values: dict[str, dict[str, bytes]] = {}
        self.done: dict[str, set[str]] = {}
        self.count = 0
        self.lock = threading.Lock()

    def get(self, scope: str, key: str) -> bytes | None:
        with self.lock:
            return self.values.get(scope, {}).get(key)

    def put(self, scope: str, key: str, value: bytes) -> bool:
        """False when the store is full."""
        with self.lock:
            kept = self.values.setdefault(scope, {})
            if key not in kept:
                if self.count >= MOST_KEYS:
                    return False
                self.count += 1
            kept[key] = value
            return True

    def delete(self, scope: str, key: str) -> None:
        with self.lock:
            if scope in self.sizes:
                done = self.done.setdefault(scope, set())
                done.add(key)
                if len(done) >= self.sizes[scope]:
                    self.count -= len(self.values.pop(scope, {}))
                    del self.done[scope]
            elif self.values.get(scope, {}).pop(key, None) is not None:
                self.count -= 1

    def is_used(self) -> bool:
        """Whether some members of a scope are not done yet."""
        with self.lock:
            return any(scope in self.sizes for scope in self.values)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    store: KeyValueStore

    def do_GET(self) -> None:
        address = self._address()
        if address is not None:
            value = self.store.get(*address)
            self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        address = self._address()
        length = self.headers.get("Content-Length", "")
        if address is None:
            return
        if not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True  # what follows is not read
            self._answer(413)
            return
        value = self.rfile.read(int(length))
        self._answer(200 if len(value) == int(length) and self.store.put(*address, value) else 400)

    def do_DELETE(self) -> None:
        address = self._address()
        if address is not None:
            self.store.delete(*address)
            self._answer(200)

    def _address(self) -> tuple[str, str] | None:
        parts = self.path.split("/")
        if len(parts) == 3 and not parts[0] and parts[1] and parts[2]:
            return parts[1], parts[2]
        self.close_connection = True
        self._answer(400)
        return None

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - http.server's names
        pass


class RendezvousServer(ThreadingHTTPServer):
    daemon_threads = True
    store: KeyValueStore

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignored: others report a rank that was killed in the middle of a request."""


def serving(listener: socket.socket, sizes: Mapping[str, int]) -> RendezvousServer:
    """A server on a listening socket; the caller starts it."""
    store = KeyValueStore(sizes)
    server = RendezvousServer(listener.getsockname()[:2], type("BoundHandler", (Handler,), {"store": store}), False)
    server.store = store
    server.socket.close()
    server.socket = listener
    return server


if __name__ == "__main__":
    serving(socket.create_server((sys.argv[1], int(sys.argv[2]))), json.load(sys.stdin)).serve_forever()
