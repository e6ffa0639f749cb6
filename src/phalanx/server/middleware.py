"""The door: which host was asked for, who asks, how much, and what becomes of faults that nobody expected.

Everything is behind it. Which address asks for whom is in the table of `policy`.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import traceback
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.server.auth.audit import Audit
from phalanx.server.auth.credentials import SAFE_METHODS, AuthResult, Credentials, is_from_here
from phalanx.server.auth.rate_limits import Traffic, network_of
from phalanx.server.http.responses import RequestError, refusal_answer
from phalanx.server.ops.access_log import ServerLog
from phalanx.server.policy import is_routine

LONGEST_ADDRESS = 48 << 10  # bytes
LONGEST_HEADERS = 64 << 10
REFUSED = (401, 403, 421, 429)
FOREIGN = "pages of other sites may not use this server"


class GuardMiddleware:
    def __init__(  # noqa: PLR0913, PLR0917 - what a door has
        self,
        app: ASGIApp,
        credentials: Credentials,
        audit: Audit,
        traffic: Traffic,
        names: Iterable[str],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when somebody has changed something, before they are told."""
        self.app = app
        self.credentials = credentials
        self.audit = audit
        self.traffic = traffic
        self.changed = changed
        self.names = frozenset(name.lower() for name in (*names, *own_names()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":  # there are no web sockets: an unanswered one is closed by the server
            await _Visit(self, scope, send).make(receive)

    async def admit(self, scope: Scope) -> None:
        """Raises Refusal; else the scope knows who asks."""
        headers, address = Headers(scope=scope), address_of(scope)
        check_size(scope)
        check_host(headers.get("host", ""), self.names)
        is_visit = is_navigation(headers, scope["method"])
        if not is_visit:
            check_origin(headers)
        self.traffic.count([f"address {network_of(address)}"])
        # Who follows a link from elsewhere gets the page, as nobody: it asks for the rest by itself.
        claim = AuthResult() if is_visit else await self.credentials.claim(headers, scope["method"], address)
        if claim.identity is not None:
            self.traffic.count([f"{claim.identity.kind} {claim.identity.name}"])
        scope["state"]["claim"] = claim

    async def note(self, scope: Scope, status: int) -> None:
        claim: AuthResult | None = scope["state"].get("claim")
        caller = claim.identity if claim is not None else None
        where = address_of(scope)
        action = f"{scope['method']} {getattr(scope.get('route'), 'path', '(nothing)')}"
        if status in REFUSED:
            await run_in_threadpool(self.audit.note_refusal, caller, action, scope["path"], status, where)
        elif scope["method"] not in SAFE_METHODS and not is_routine(scope):
            self.changed()
            await run_in_threadpool(self.audit.note, caller, action, scope["path"], status, where)


class _Visit:
    """One request on its way in and out."""

    def __init__(self, guard: GuardMiddleware, scope: Scope, send: Send) -> None:
        self.guard = guard
        self.scope = scope
        self.send = send
        self.is_begun = False
        scope.setdefault("state", {})["leaving"] = []

    async def make(self, receive: Receive) -> None:
        try:
            await self.guard.admit(self.scope)
            await self.guard.app(self.scope, receive, self._send)
        except RequestError as refusal:
            await refusal_answer(refusal, self.scope["path"])(self.scope, receive, self._send)
        except Exception as fault:  # the edge: the one who asks gets a sentence, the one who serves the place
            log_error(self.scope, fault)
            if self.is_begun:
                raise  # the answer is cut off, and the other side sees that it is
            sorry = RequestError(500, "something went wrong here; the server's terminal says what")
            await refusal_answer(sorry, self.scope["path"])(self.scope, receive, self._send)
        finally:
            for leave in self.scope["state"]["leaving"]:
                leave()

    async def _send(self, message: Message) -> None:
        """What is answered has been noted."""
        if message["type"] == "http.response.start":
            self.is_begun = True
            await self.guard.note(self.scope, message["status"])
        await self.send(message)


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def check_size(scope: Scope) -> None:
    """Raises Refusal for what no client of ours sends."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_ADDRESS:
        raise RequestError(414, f"an address may have {LONGEST_ADDRESS:,} bytes")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_HEADERS:
        raise RequestError(431, f"headers may have {LONGEST_HEADERS:,} bytes")


def check_host(header: str, names: frozenset[str]) -> None:
    """A page elsewhere may have its own name lead to this address, and then read what is served there. It cannot make
    a browser name this machine, or a bare address. Raises Refusal."""
    try:
        host = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        host = ""
    if host in names:
        return
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        hint = "allow it with `phalanx serve --allow-host NAME` if it is a name of this server"
        raise RequestError(421, f"this server does not answer for the host `{header[:100]}`", hint) from None


def check_origin(headers: Headers) -> None:
    """Browsers say when a page of another site asks. Nobody here answers those. Raises Refusal."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RequestError(403, FOREIGN)
    if headers.get("origin") is not None and not is_from_here(headers):
        raise RequestError(403, FOREIGN)


def is_navigation(headers: Headers, method: str) -> bool:
    """Whether somebody follows a link of another site with a browser, into a window of its own."""
    said = [headers.get(f"sec-fetch-{name}") for name in ("site", "mode", "dest")]
    return method == "GET" and said[0] in ("cross-site", "same-site") and said[1:] == ["navigate", "document"]


def own_names() -> list[str]:
    return ["localhost", socket.gethostname()]


def log_error(scope: Scope, fault: Exception) -> None:
    """For whoever runs the server. Neither headers nor bodies: they hold tokens and other people's data."""
    place = traceback.extract_tb(fault.__traceback__)[-1]
    said = f"{type(fault).__name__}: {fault}"[:500].replace("\n", " ")
    log: ServerLog = scope["state"].get("log") or ServerLog()
    message = f"phalanx serve: {scope['method']} {scope['path'][:200]!r} failed: {said} ({place.name})"
    log.trouble(message, id=scope["state"].get("request_id"))
    if os.environ.get("PHALANX_DEBUG"):
        traceback.print_exception(fault)
