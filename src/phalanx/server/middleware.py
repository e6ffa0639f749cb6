"""The middleware before all routes: host check, authentication, rate limits, and handling of unexpected errors.

Which role each path requires is in the table of `policy`.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import traceback
from collections.abc import Iterable
from functools import partial
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.server.auth.audit import Audit
from phalanx.server.auth.credentials import SAFE_METHODS, AuthResult, Credentials, is_from_here
from phalanx.server.auth.rate_limits import Traffic, address_of, network_of
from phalanx.server.http.body_pace import PacedBody
from phalanx.server.http.responses import RequestError, refusal_answer
from phalanx.server.ops.access_log import ServerLog
from phalanx.server.policy import is_routine
from phalanx.server.processes.shared_state import SharedState

LONGEST_ADDRESS = 48 << 10  # bytes
LONGEST_HEADERS = 64 << 10
REFUSED = (401, 403, 421, 429)
FOREIGN = "requests from pages of other sites are not allowed"


class GuardMiddleware:
    def __init__(  # noqa: PLR0913, PLR0917 - the parts of the middleware
        self,
        app: ASGIApp,
        credentials: Credentials,
        audit: Audit,
        traffic: Traffic,
        names: Iterable[str],
        shared: SharedState | None = None,
    ) -> None:
        self.app = app
        self.credentials = credentials
        self.audit = audit
        self.traffic = traffic
        self.shared = shared or SharedState()
        self.names = frozenset(name.lower() for name in (*names, *own_names()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":  # web sockets are not supported: the server closes an unanswered one
            await _Visit(self, scope, PacedBody(receive), send).make()

    async def admit(self, scope: Scope) -> None:
        """Raises RequestError; otherwise stores the caller in the scope."""
        headers, address = Headers(scope=scope), address_of(scope)
        check_size(scope)
        check_host(headers.get("host", ""), self.names)
        is_visit = is_navigation(headers, scope["method"])
        if not is_visit:
            check_origin(headers)
        scope["state"]["key"] = f"address {network_of(address)}"  # who shares limits: an address, or an identity
        self.traffic.count([scope["state"]["key"]])
        # A visitor who follows a link from another site gets the page anonymously: the page then makes its own
        # requests.
        proxied = scope["state"].get("proxied_user")
        claim = AuthResult() if is_visit else await self.credentials.claim(headers, scope["method"], address, proxied)
        scope["state"]["claim"] = claim
        if claim.identity is not None:
            scope["state"]["key"] = f"{claim.identity.kind} {claim.identity.name}"
            self.traffic.count([scope["state"]["key"]])

    async def note(self, scope: Scope, status: int) -> None:
        claim: AuthResult | None = scope["state"].get("claim")
        caller = claim.identity if claim is not None else None
        where = address_of(scope)
        action = f"{scope['method']} {getattr(scope.get('route'), 'path', '(nothing)')}"
        about = {"run": scope.get("path_params", {}).get("run_id"), **scope["state"].get("about", {})}
        if status in REFUSED:
            note = partial(self.audit.note_refusal, caller, action, scope["path"], status, where, **about)
            await run_in_threadpool(note)
        elif scope["method"] not in SAFE_METHODS:
            is_change = not is_routine(scope)
            self.shared.note_write(is_change=is_change)
            if is_change:
                await run_in_threadpool(partial(self.audit.note, caller, action, scope["path"], status, where, **about))


class _Visit:
    """One request and its response."""

    def __init__(self, guard: GuardMiddleware, scope: Scope, body: PacedBody, send: Send) -> None:
        self.guard = guard
        self.scope = scope
        self.body = body
        self.send = send
        self.is_begun = False
        scope.setdefault("state", {})["leaving"] = []

    async def make(self) -> None:
        receive = self.body.receive
        try:
            await self.guard.admit(self.scope)
            await self.guard.app(self.scope, receive, self._send)
        except RequestError as refusal:
            await refusal_answer(refusal, self.scope["path"])(self.scope, receive, self._send)
        except ClientDisconnect:
            return  # the client is gone: no response can be sent
        except Exception as fault:  # the edge: the client gets a message, the operator the place in the code
            log_error(self.scope, fault)
            if self.is_begun:
                raise  # the response is aborted, which the client detects
            sorry = RequestError(500, "internal server error; see the server's terminal for details")
            await refusal_answer(sorry, self.scope["path"])(self.scope, receive, self._send)
        finally:
            for leave in self.scope["state"]["leaving"]:
                leave()

    async def _send(self, message: Message) -> None:
        """The response is sent only after the audit log has the request."""
        if message["type"] == "http.response.start":
            self.is_begun = True
            await self.guard.note(self.scope, message["status"])
            if message["status"] >= 400 and not self.body.is_whole and has_body(self.scope):
                # Without it the server would read the rest of the body before the next request.
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self.send(message)


def has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def check_size(scope: Scope) -> None:
    """Raises RequestError for sizes that no valid client sends."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_ADDRESS:
        raise RequestError(414, f"the URL exceeds the limit of {LONGEST_ADDRESS:,} bytes")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEADERS:
        raise RequestError(431, f"the headers exceed the limit of {LONGEST_HEADERS:,} bytes")


def check_host(header: str, names: frozenset[str]) -> None:
    """Protects against DNS rebinding: another site may point its own name at this address to read what is served here,
    but it cannot make a browser send this machine's name or a bare address. Raises RequestError."""
    try:
        host = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        host = ""
    if host in names:
        return
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        hint = "if it is a name of this server, allow it with `phalanx serve --allow-host NAME`"
        raise RequestError(421, f"this server does not accept the host `{header[:100]}`", hint) from None


def check_origin(headers: Headers) -> None:
    """Browsers mark requests from pages of other sites; these are rejected. Raises RequestError."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RequestError(403, FOREIGN)
    if headers.get("origin") is not None and not is_from_here(headers):
        raise RequestError(403, FOREIGN)


def is_navigation(headers: Headers, method: str) -> bool:
    """Whether a browser follows a link from another site in a top-level window."""
    said = [headers.get(f"sec-fetch-{name}") for name in ("site", "mode", "dest")]
    return method == "GET" and said[0] in ("cross-site", "same-site") and said[1:] == ["navigate", "document"]


def own_names() -> list[str]:
    return ["localhost", socket.gethostname()]


def log_error(scope: Scope, fault: Exception) -> None:
    """For the operator. Logs neither headers nor bodies: they contain tokens and private data."""
    place = traceback.extract_tb(fault.__traceback__)[-1]
    said = f"{type(fault).__name__}: {fault}"[:500].replace("\n", " ")
    log: ServerLog = scope["state"].get("log") or ServerLog()
    message = f"phalanx serve: {scope['method']} {scope['path'][:200]!r} failed: {said} ({place.name})"
    log.trouble(message, id=scope["state"].get("request_id"))
    if os.environ.get("PHALANX_DEBUG"):
        traceback.print_exception(fault)
