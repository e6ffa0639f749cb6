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
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from tests.kubernetes.rest import Rest, kubeconfig

REASONS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 410: "Expired", 422: "Invalid"}
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


class Lens(Protocol):
    """Through which clients and the API server see each other."""

    def inward(self, method: str, path: str, body: bytes, ask: Callable[[str], Any]) -> bytes:
        """What a client sends, as the API server gets it; `ask` reads at a path as that client. Raises Refusal."""

    def outward(self, path: str) -> Callable[[Any], Any] | None:
        """What makes of an object in an answer what the client gets. None: answers are passed on as they are."""


class Refusal(Exception):
    """A lens says no in the API server's place: with the code and message that clients see."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Proxy:
    """Listens on loopback, without TLS. Whoever comes without a token is taken for the upstream's user."""

    def __init__(self, upstream: Path) -> None:
        self.rest = Rest.of(upstream)
        self.lens: Lens | None = None
        self.lends_identity = True
        self.requests: list[Request] = []
        self.open: list[socket.socket] = []
        self.rules: list[Rule] = []
        self.is_down = False
        self.lock = threading.Lock()
        self._server = self._listening()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _listening(self) -> ThreadingHTTPServer:
        return listening(self, 0)

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

    def upstream(self, *, is_lent: bool) -> http.client.HTTPConnection:
        """`is_lent`: with the upstream's certificate, if that is how it knows its user."""
        address = urlsplit(self.rest.server)
        assert address.hostname is not None
        if address.scheme == "http":
            return http.client.HTTPConnection(address.hostname, address.port or 80, timeout=600)
        trust = self.rest.verify if is_lent else self.rest.anonymous
        context = trust if isinstance(trust, ssl.SSLContext) else None
        return http.client.HTTPSConnection(address.hostname, address.port or 443, timeout=600, context=context)


def listening(proxy: Proxy, port: int) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    return Server(("127.0.0.1", port), type("Of", (Passing,), {"proxy": proxy}))


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
        has_token = bool(headers.get("Authorization", "").removeprefix("Bearer").strip())
        is_lent = self.proxy.lends_identity and not has_token
        if is_lent and self.proxy.rest.token:
            headers["Authorization"] = f"Bearer {self.proxy.rest.token}"
        lens = self.proxy.lens
        upstream = self.proxy.upstream(is_lent=is_lent)
        try:
            if lens is not None and body:
                body = lens.inward(self.command, self.path, body, lambda path: self._asked(path, headers))
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
        except Refusal as refusal:
            upstream.close()
            self._refuse(refusal.code, None, str(refusal))
            return
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
            self._answer(answer, lens.outward(self.path) if lens is not None else None)
        finally:
            upstream.close()

    def _asked(self, path: str, headers: dict[str, str]) -> Any:
        upstream = self.proxy.upstream(is_lent=False)
        try:
            upstream.request("GET", path, None, {"Authorization": headers.get("Authorization", "")})
            return json.loads(upstream.getresponse().read())
        finally:
            upstream.close()

    def _answer(self, answer: http.client.HTTPResponse, seen: Callable[[Any], Any] | None) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
        try:
            for piece in pieces(answer, seen if is_json else None, is_watch="watch=" in self.path):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
        except (OSError, http.client.HTTPException):  # the server is gone: so is the answer
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _refuse(self, code: int, retry_after_s: int | None, message: str | None = None) -> None:
        reason = REASONS.get(code, "Unknown")
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body = {**status, "code": code, "reason": reason, "message": message or f"the test says {reason}"}
        content = json.dumps(body).encode()
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""


def pieces(answer: http.client.HTTPResponse, seen: Callable[[Any], Any] | None, *, is_watch: bool) -> Iterator[bytes]:
    """An answer as it comes; where a lens is before it, object by object."""
    if seen is None:
        while piece := answer.read1(65_536):
            yield piece
    elif is_watch:
        while line := answer.readline():
            yield json.dumps(seen(json.loads(line))).encode() + b"\n"
    elif content := answer.read():
        yield json.dumps(seen(json.loads(content))).encode()
