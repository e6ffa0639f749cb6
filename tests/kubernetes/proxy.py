"""Between a client and the API server: counts what is asked, and answers, holds or cuts what a test wants it to."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.kubernetes.rest import Rest, kubeconfig

REASONS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 410: "Expired"}
HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


class Request(NamedTuple):
    at: float
    method: str
    path: str  # with its query

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and "watch=" in self.path

    @property
    def is_log(self) -> bool:
        return urlsplit(self.path).path.endswith("/log")


class Rule:
    """What happens to requests that match, as often as is said."""

    def __init__(self, pattern: str, times: int, code: int | None, retry_after_s: int | None) -> None:
        self.pattern = re.compile(pattern)
        self.times = times
        self.code = code
        self.retry_after_s = retry_after_s
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None
        self.met = 0

    def matches(self, request: Request) -> bool:
        return self.times > 0 and self.pattern.search(f"{request.method} {request.path}") is not None


class Proxy:
    """Listens on loopback, without TLS. Whoever comes without a token is taken for the upstream's user."""

    def __init__(self, upstream: Path) -> None:
        self.rest = Rest.of(upstream)
        self.requests: list[Request] = []
        self.open: list[socket.socket] = []
        self.rules: list[Rule] = []
        self.is_down = False
        self.lock = threading.Lock()
        handler = type("Of", (Passing,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def kubeconfig(self, path: Path, namespace: str, token: str = "") -> Path:
        return kubeconfig(path, f"http://127.0.0.1:{self.port}", token=token, namespace=namespace)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    # what tests want

    def answer(self, pattern: str, code: int, *, times: int = 1, retry_after_s: int | None = None) -> Rule:
        """Instead of the API server. The pattern is looked for in `METHOD /path?query`."""
        return self._ruled(Rule(pattern, times, code, retry_after_s))

    def drop(self, pattern: str, *, times: int = 1) -> Rule:
        """The connection ends without an answer, and the API server never hears of it."""
        return self._ruled(Rule(pattern, times, 0, None))

    def lose_answer(self, pattern: str, *, times: int = 1) -> Rule:
        """The API server does it, and the connection ends before anyone is told."""
        return self._ruled(Rule(pattern, times, -1, None))

    def on(
        self,
        pattern: str,
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
        times: int = 1,
    ) -> Rule:
        """Called as the request comes in, or as the answer is there and not yet told."""
        rule = Rule(pattern, times, None, None)
        rule.before, rule.after = before, after
        return self._ruled(rule)

    def cut(self) -> None:
        """Every connection of now ends, watches among them."""
        with self.lock:
            open_, self.open = self.open, []
        for each in open_:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody answers."""
        self.is_down = True
        self.cut()
        try:
            yield
        finally:
            self.is_down = False

    @contextmanager
    def counting(self) -> Iterator[list[Request]]:
        """What is asked meanwhile; complete at the end."""
        found: list[Request] = []
        first = len(self.requests)
        yield found
        found += self.requests[first:]

    def _ruled(self, rule: Rule) -> Rule:
        with self.lock:
            self.rules.append(rule)
        return rule

    def rule_for(self, request: Request) -> Rule | None:
        with self.lock:
            self.requests.append(request)
            for rule in self.rules:
                if rule.matches(request):
                    rule.times -= 1
                    rule.met += 1
                    return rule
        return None

    def upstream(self) -> http.client.HTTPConnection:
        address = urlsplit(self.rest.server)
        assert address.hostname is not None
        if address.scheme == "http":
            return http.client.HTTPConnection(address.hostname, address.port or 80, timeout=600)
        context = self.rest.verify if isinstance(self.rest.verify, ssl.SSLContext) else None
        return http.client.HTTPSConnection(address.hostname, address.port or 443, timeout=600, context=context)


class Passing(BaseHTTPRequestHandler):
    """One connection of a client; for each of its requests one to the API server."""

    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            super().handle_one_request()
            return
        self.close_connection = True

    def do_any(self) -> None:
        with self.proxy.lock:
            if self.connection not in self.proxy.open:
                self.proxy.open.append(self.connection)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.proxy.is_down:
            self.close_connection = True
            return
        rule = self.proxy.rule_for(Request(time.monotonic(), self.command, self.path))
        if rule is not None:
            if rule.before is not None:
                rule.before()
            if rule.code == 0:
                self.close_connection = True
                return
            if rule.code is not None and rule.code > 0:
                self._refuse(rule.code, rule.retry_after_s)
                return
        self._pass_on(body, rule)

    def __getattr__(self, name: str) -> Any:
        """Every method is served alike."""
        if name.startswith("do_"):
            return self.do_any
        raise AttributeError(name)

    def _pass_on(self, body: bytes, rule: Rule | None) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        if not headers.get("Authorization", "").removeprefix("Bearer").strip() and self.proxy.rest.token:
            headers["Authorization"] = f"Bearer {self.proxy.rest.token}"
        upstream = self.proxy.upstream()
        try:
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
        except OSError:
            upstream.close()
            self.close_connection = True
            return
        try:
            if rule is not None and rule.after is not None:
                rule.after()
            if rule is not None and rule.code == -1:
                answer.read()
                self.close_connection = True
                return
            self._tell(answer)
        finally:
            upstream.close()

    def _tell(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            while piece := answer.read1(65_536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
        except (OSError, http.client.HTTPException):  # the server is gone: so is the answer
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _refuse(self, code: int, retry_after_s: int | None) -> None:
        reason = REASONS.get(code, "Unknown")
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        content = json.dumps({**status, "code": code, "reason": reason, "message": f"the test says {reason}"}).encode()
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""
