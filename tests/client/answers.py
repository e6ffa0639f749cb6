"""Servers that are not ours, or are in trouble: what they answer is given; what they were asked is kept."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

TOLD = "application/json"


class Said(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


def said(status: int, data: Any, **headers: str) -> Said:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said(status, json.dumps(data).encode(), {"Content-Type": TOLD, **given})


@contextmanager
def somebody(answer: Callable[[str, str, int], Said]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Its address, and the requests that came. `answer` gets method, path and the number of the request, from 0."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path))
            result = answer(self.command, self.path, len(asked) - 1)
            self.send_response(result.status)
            for name, value in {**result.headers, "Content-Length": str(len(result.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(result.body)

        do_GET = do_POST = do_DELETE = do_PUT = reply  # noqa: N815 - its names

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def cutting_proxy(port: int, lengths: list[int]) -> Iterator[str]:
    """Passes everything on to a port of this machine; of the answers, each connection only so many bytes as the list
    still has, and then without an end."""
    listening = socket.create_server(("127.0.0.1", 0))
    workers: list[threading.Thread] = []

    def work(ours: socket.socket) -> None:
        with ours, socket.create_connection(("127.0.0.1", port)) as theirs:
            ours.settimeout(5)
            theirs.settimeout(5)
            left = lengths.pop(0) if lengths else 1 << 40
            request = b""
            while b"\r\n\r\n" not in request:
                piece = ours.recv(1 << 16)
                if not piece:
                    return
                request += piece
            theirs.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            while left > 0 and (answer := theirs.recv(min(left, 1 << 16))):
                ours.sendall(answer)
                left -= len(answer)

    def accept() -> None:
        while True:
            try:
                ours, _ = listening.accept()
            except OSError:
                return
            workers.append(threading.Thread(target=work, args=(ours,)))
            workers[-1].start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for worker in workers:
            worker.join()
