"""The door: which host was asked for, who asks, and what becomes of faults that nobody expected.

Everything is behind it, also what is added later: without a token only GET /healthz is answered.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import socket
import sys
import traceback
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.errors import CallError
from phalanx.server.answers import Refusal, refusal_answer
from phalanx.server.tokens import Identity, Tokens

OPEN = ("/healthz",)
NO_TOKEN = "send the header `Authorization: Bearer TOKEN`; the owner's token is in the file `token` of the home"  # noqa: S105


class Guard:
    def __init__(self, app: ASGIApp, tokens: Tokens, names: Iterable[str]) -> None:
        self.app = app
        self.tokens = tokens
        self.names = frozenset(name.lower() for name in (*names, *own_names()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets: an unanswered one is closed by the server
            return
        begun = False

        async def watched_send(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            self._admit(scope)
            await self.app(scope, receive, watched_send)
        except Refusal as refusal:
            await refusal_answer(refusal, scope["path"])(scope, receive, send)
        except Exception as fault:  # the edge: the one who asks gets a sentence, the one who serves the place
            tell(scope, fault)
            if begun:
                raise  # the answer is cut off, and the other side sees that it is
            sorry = Refusal(500, "something went wrong here; the server's terminal says what")
            await refusal_answer(sorry, scope["path"])(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        check_host(headers.get("host", ""), self.names)
        check_origin(headers)
        if scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN:
            return
        scope.setdefault("state", {})["identity"] = self._identity(headers.get("authorization", ""))

    def _identity(self, header: str) -> Identity:
        token = token_of(header)
        if not token:
            raise Refusal(401, "this server wants a token", NO_TOKEN)
        try:
            identity = self.tokens.identify(token)
        except CallError as fault:
            raise Refusal(503, str(fault)) from None
        if identity is None:
            raise Refusal(401, "this token is not valid (any more)", "`phalanx token list` shows those that are")
        return identity


def token_of(header: str) -> str:
    """The token of an Authorization header: a bearer's, or the password of a user of any name."""
    kind, _, rest = header.partition(" ")
    if kind.lower() == "bearer":
        return rest.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


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
        raise Refusal(421, f"this server does not answer for the host `{header[:100]}`", hint) from None


def check_origin(headers: Headers) -> None:
    """Browsers say when a page of another site asks. Nobody here answers those. Raises Refusal."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refusal(403, "pages of other sites may not use this server")
    origin = headers.get("origin")
    if origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower():
        raise Refusal(403, "pages of other sites may not use this server")


def own_names() -> list[str]:
    return ["localhost", socket.gethostname()]


def tell(scope: Scope, fault: Exception) -> None:
    """For whoever runs the server. Neither headers nor bodies: they hold tokens and other people's data."""
    place = traceback.extract_tb(fault.__traceback__)[-1]
    said = f"{type(fault).__name__}: {fault}"[:500].replace("\n", " ")
    print(f"phalanx serve: {scope['method']} {scope['path'][:200]!r} failed: {said} ({place.name})", file=sys.stderr)
    if os.environ.get("PHALANX_DEBUG"):
        traceback.print_exception(fault)


def identity_of(scope: Scope) -> Identity:
    found: Identity = scope["state"]["identity"]
    return found
