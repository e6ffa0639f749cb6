"""MLflow's API for the processes of one replica, at a port of the loopback: for runs without a Phalanx server.

The supervisor opens the port and starts this only at the first connection. What clients log becomes records of the
replica's spool, and files of the run. One thread answers one request per connection, so that no client can hold it.
Standard library only, Python 3.8+.
"""

from __future__ import annotations

import hmac
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from phalanx.agent.mlflow.calls import MlflowCalls
from phalanx.agent.mlflow.records import MlflowRefusal, RunRecords
from phalanx.atomic_files import draft_of

MOST_BYTES = 32 << 20  # of a call; files are streamed
PIECE = 1 << 20
PATIENCE_S = 60.0  # for a client that is silent in the middle of a request
FILES = "/api/2.0/mlflow-artifacts/artifacts"
SERVED = "3.0.0"  # clients that send traces ask for the version, and send none to one of this age
INFO = {"store_type": None, "workspaces_enabled": False, "trace_archival_enabled": False}


def start(listener: socket.socket, token: str, records: RunRecords) -> HTTPServer:
    """Answer the connections of a listening socket, in a thread, until the process ends."""
    server = HTTPServer(("127.0.0.1", 0), _Request, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.calls, server.secret = MlflowCalls(records), f"Bearer {token}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, name="mlflow", daemon=True).start()
    return server


class _Request(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: the connection ends with the answer."""

    timeout = PATIENCE_S
    server: Any

    def log_message(self, *_: Any) -> None:
        pass  # the agent's log is for the agent

    def _answer(self) -> None:
        try:
            self._answer_checked()
        except MlflowRefusal as refusal:
            self._say({"error_code": refusal.code, "message": str(refusal)}, refusal.status)
        except FileNotFoundError:
            self._say({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such file"}, 404)
        except (socket.timeout, ConnectionError):  # noqa: UP041 - Python 3.8
            pass  # the client is gone
        except OSError as fault:
            self._say({"error_code": "INTERNAL_ERROR", "message": f"cannot store this: {fault.strerror}"}, 507)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as fault:
            message = f"this request is malformed: {type(fault).__name__}: {str(fault)[:200]}"
            self._say({"error_code": "INVALID_PARAMETER_VALUE", "message": message}, 400)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of the library

    def _answer_checked(self) -> None:
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), self.server.secret.encode()):
            raise MlflowRefusal("the token of another run", "UNAUTHENTICATED", 401)
        address = urlsplit(self.path)
        path, query = unquote(address.path), {key: values[0] for key, values in parse_qs(address.query).items()}
        if path == FILES or path.startswith(f"{FILES}/"):
            self._files(path[len(FILES) :].strip("/"), query.get("path", ""))
        elif path in ("/version", "/health"):
            self._send(b"OK" if path == "/health" else SERVED.encode(), "text/plain")
        elif path.endswith("/mlflow/server-info"):
            self._say(INFO)
        else:
            fields = query if self.command == "GET" else json.loads(self._body() or b"{}")
            if not isinstance(fields, dict):
                raise MlflowRefusal("the body of a call is an object")
            self._say(self.server.calls.answer(self.command, path.partition("/mlflow/")[2], fields))

    # files -------------------------------------------------------------------------------------------------------

    def _files(self, path: str, listed: str) -> None:
        records: RunRecords = self.server.calls.records
        if self.command == "GET" and not path:
            self._say({"files": records.entries(records.file(listed))})
        elif self.command == "GET":
            with open(records.file(path), "rb") as stream:
                self.send_response(200)
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Content-Length", str(os.fstat(stream.fileno()).st_size))
                self.end_headers()
                shutil.copyfileobj(stream, self.wfile, PIECE)
        elif self.command == "PUT":
            self._receive(records, path)
        elif self.command == "DELETE":
            target = records.file(path)
            (shutil.rmtree if os.path.isdir(target) else os.unlink)(target)
            self._say({})
        else:
            raise MlflowRefusal(f"{self.command} of a file", "ENDPOINT_NOT_FOUND", 404)

    def _receive(self, records: RunRecords, path: str) -> None:
        """A file appears complete or not at all. A copy elsewhere, such as a registered model, never changes."""
        target = records.file(path)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        with draft_of(target) as draft, open(draft, "xb", opener=_private) as stream:
            for piece in self._pieces():
                stream.write(piece)
        records.keep_file(path, os.stat(target).st_size)
        self._say({})

    # bodies ------------------------------------------------------------------------------------------------------

    def _body(self) -> bytes:
        found = bytearray()
        for piece in self._pieces():
            found += piece
            if len(found) > MOST_BYTES:
                raise MlflowRefusal(f"a call of more than {MOST_BYTES >> 20} MiB", status=413)
        return bytes(found)

    def _pieces(self) -> Iterator[bytes]:
        """The body: of a given length, or in chunks, as clients send empty files. Raises ConnectionError if it is
        incomplete."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while True:
                size = int(self.rfile.readline(100).split(b";")[0], 16)
                yield from self._exactly(size)
                self.rfile.readline(100)
                if not size:
                    return
        yield from self._exactly(int(self.headers.get("Content-Length") or 0))

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self.rfile.read(min(size, PIECE))
            if not piece:
                raise ConnectionError("the request is incomplete")
            size -= len(piece)
            yield piece

    def _say(self, content: Any, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), "application/json", status)

    def _send(self, data: bytes, kind: str, status: int = 200) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the client is gone


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
