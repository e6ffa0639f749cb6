"""A small server that takes runs as Phalanx's own does, and fails as real ones do."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "the-right-one"


class Post:
    """What arrived, and how to answer. Its port stays the same when it goes away and comes back."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.drafts: dict[str, bytes] = {}
        self.ends: dict[str, dict[str, Any]] = {}
        self.beats = 0
        self.requests: list[str] = []
        self.delay_s = 0.0
        self.breaks: list[int | bytes] = []  # how the next requests go wrong: a code, or bytes that are no answer
        self.is_broken: int | bytes | None = None  # how all of them do
        self.refused = ""  # a part of a path that is not wanted
        self.half_of = ""  # a part of a path of which half is kept, and then the line breaks
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Post:
        self.come()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.leave()

    def come(self) -> None:
        handler = type("Handler", (_Handler,), {"post": self})
        self._server = _Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def leave(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def file(self, ending: str) -> bytes:
        (found,) = [data for path, data in self.files.items() if path.endswith(ending)]
        return found


class _Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    post: Post

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that it has
        """In silence."""

    def do_POST(self) -> None:
        self._take()

    def do_PUT(self) -> None:
        self._take()

    def _take(self) -> None:
        post = self.post
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(post.delay_s)
        with post.lock:
            post.requests.append(f"{self.command} {self.path}")
            broken = post.breaks.pop(0) if post.breaks else post.is_broken
            if isinstance(broken, bytes):
                self.wfile.write(broken)
                self.close_connection = True
            elif broken is not None:
                self._answer(broken, {"error": {"message": "out of order"}})
            elif self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._answer(401, {"error": {"message": "who are you?"}})
            else:
                self._answer(*self._done(body))

    def _answer(self, code: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _done(self, body: bytes) -> tuple[int, dict[str, Any]]:
        post, parts = self.post, urlsplit(self.path)
        if parts.path == "/api/v1/runs":
            run = json.loads(body)
            post.runs.setdefault(run["id"], run)
            return 201, run
        match = re.fullmatch(r"/api/v1/runs/([^/]+)/(finish|beat|files/(.+))", parts.path)
        if match is None or match[1] not in post.runs:
            return 404, {"error": {"message": "there is no such run"}}
        if match[2] == "beat":
            post.beats += 1
            return 200, {}
        if match[2] == "finish":
            post.ends.setdefault(match[1], json.loads(body))
            return 200, {}
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return self._put(unquote(match[3]), body, asked)

    def _put(self, path: str, body: bytes, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        post = self.post
        if post.refused and post.refused in path:
            return 400, {"error": {"message": "not this one"}}
        if "size" not in asked and not re.fullmatch(r"replicas/[^/]+/attempt-1/[^/]+[.](points|events)", path):
            return 400, {"error": {"message": "how long is it?"}}
        offset = int(asked["offset"])
        if asked.get("whole") == "1":
            post.files[path] = body
            return 200, {"size": len(body)}
        kept = post.drafts if "size" in asked else post.files
        there = kept.get(path, b"") if offset or "size" not in asked else b""
        if offset > len(there):
            return 409, {"size": len(there), "error": {"message": f"the file ends at {len(there)}"}}
        if post.half_of and post.half_of in path:
            body, post.half_of = body[: len(body) // 2], ""
            kept[path] = there + body[len(there) - offset :]
            return 500, {"error": {"message": "and then the disk was full"}}
        kept[path] = there + body[len(there) - offset :]
        size = len(kept[path])
        if "size" in asked and size == int(asked["size"]):
            post.files[path] = kept.pop(path)
        return 200, {"size": size}
