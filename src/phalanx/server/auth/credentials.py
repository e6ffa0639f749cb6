"""Credentials of a request: a token, a name and password, or a session cookie."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Scope

from phalanx.errors import CallError, SystemFault
from phalanx.server.auth.accounts import Accounts, User
from phalanx.server.auth.identities import ALL, Identity
from phalanx.server.auth.proxy_header import ProxiedUser
from phalanx.server.auth.rate_limits import ConcurrencyGate, LoginFailures, RateLimits, network_of
from phalanx.server.auth.sessions import Sessions
from phalanx.server.auth.sign_on import SignOnSettings
from phalanx.server.auth.tokens import Tokens, is_token
from phalanx.server.http.responses import RequestError
from phalanx.server.processes.shared_state import SharedState

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
NO_TOKEN = "send the header `Authorization: Bearer TOKEN`; the owner's token is in the file `token` of the home"  # noqa: S105
AT_ONCE = 2  # password checks at once; each takes 32 MiB
REMEMBERED_S = 600.0
MOST_REMEMBERED = 1000
NO_ROLE = "you have no role on this server: ask its administrator for one"


class AuthResult(NamedTuple):
    """The claimed identity of a request: verified, rejected, or absent. The policy of the path decides what that
    means."""

    identity: Identity | None = None
    refusal: RequestError | None = None

    def granted(self) -> Identity:
        """Raises RequestError."""
        if self.identity is None:
            raise self.refusal or RequestError(401, "this server requires a token", NO_TOKEN)
        return self.identity


class Credentials:
    """The credentials that one home accepts."""

    def __init__(self, home: Path) -> None:
        self.accounts = Accounts(home)
        self.tokens = Tokens(home, self.accounts)
        self.sessions = Sessions(home, self.tokens, self.accounts)
        self.limit(RateLimits())
        self.sign_on: SignOnSettings | None = None
        self._proven = _Proven()

    def limit(self, limits: RateLimits, shared: SharedState | None = None) -> None:
        self.failures = LoginFailures(limits, shared=shared)
        self._passwords = ConcurrencyGate(AT_ONCE, limits.waiting, limits.patience_s)

    def is_anybody_limited(self) -> bool:
        """Whether any user or token is limited to some projects. Raises CallError."""
        rules = self.sign_on.roles if self.sign_on is not None else ()
        given = [*(user.roles.keys() for user in self.accounts.known()), *(rule.projects for rule in rules)]
        return any(
            ALL not in places for places in [*given, *(token.projects or (ALL,) for token in self.tokens.known())]
        )

    async def claim(
        self, headers: Headers, method: str, address: str, proxied: ProxiedUser | None = None
    ) -> AuthResult:
        """`proxied`: the user whom a trusted proxy names. Never raises: invalid credentials may not matter for this
        path."""
        try:
            shown = headers.get("authorization")
            if shown:
                found = await self._shown(shown, address)
            else:
                found = self._proxied(proxied) if proxied is not None else self._cookie(headers)
                if found is not None and method not in SAFE_METHODS and not is_from_here(headers):
                    message = "only this server's own page may do this without a token"
                    raise RequestError(403, message, NO_TOKEN)
            return AuthResult(found._replace(address=address) if found is not None else None)
        except RequestError as refusal:
            return AuthResult(refusal=refusal)
        except (CallError, SystemFault) as fault:
            return AuthResult(refusal=RequestError(503, str(fault)))

    async def _shown(self, header: str, address: str) -> Identity | None:
        name, secret = shown_in(header)
        if not secret:
            raise RequestError(401, "the Authorization header has no token", NO_TOKEN)
        if name is None or is_token(secret):
            return self.of_token(secret)
        return await self.of_password(name, secret, address)

    def of_token(self, text: str) -> Identity:
        """Raises RequestError."""
        found = self.tokens.identify(text)
        if found is None:
            raise RequestError(401, "this token is invalid or has expired", "`phalanx token list` shows the valid ones")
        return found

    async def of_password(self, name: str, password: str, address: str) -> Identity:
        """Raises RequestError, with the same message whether the user exists or not."""
        user = self._proven.get(self.accounts, name, password)
        if user is None:
            self.failures.begin(name, address)
            async with self._passwords.entered(f"address {network_of(address)}"):
                user = await run_in_threadpool(self.accounts.verify, name, password)
            if user is None:
                raise RequestError(401, "invalid username or password")
            self.failures.was_right(name, address)
            self._proven.put(user, password)
        return Identity(user.name, user.roles, kind="user", user=user.name)

    def _cookie(self, headers: Headers) -> Identity | None:
        """Browsers send the cookie whichever page makes the request, so `claim` accepts changes only from our own
        page."""
        value = cookies_of(headers).get(self.sessions.cookie)
        return self.sessions.identify(value) if value else None

    def _proxied(self, user: ProxiedUser) -> Identity:
        """A proxy names its user whichever page makes the request, as with a cookie."""
        roles = self.sign_on.roles_of(user.groups) if self.sign_on is not None else {}
        if not roles:
            raise RequestError(403, NO_ROLE)
        try:
            found = self.accounts.signed_on(f"proxy {user.name}", user.name, roles)
        except CallError as fault:
            raise RequestError(403, str(fault)) from None
        return Identity(found.name, found.roles, kind="proxy", user=found.name)


class _Proven:
    """Recently verified passwords, as MACs: clients that send a password with every request do not wait for scrypt each
    time."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def get(self, accounts: Accounts, name: str, password: str) -> User | None:
        user = accounts.find(name)
        with self._lock:
            stamp, until = self._kept.get(self._mac(name, password), ("", 0.0))
        return user if user is not None and user.hash == stamp and time.monotonic() < until else None

    def put(self, user: User, password: str) -> None:
        with self._lock:
            self._kept[self._mac(user.name, password)] = user.hash, time.monotonic() + REMEMBERED_S
            while len(self._kept) > MOST_REMEMBERED:
                self._kept.popitem(last=False)

    def _mac(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\n{password}".encode("utf-8", "surrogatepass"), hashlib.sha256)


def shown_in(header: str) -> tuple[str | None, str]:
    """The secret of an Authorization header: a bearer token, which has no name, or a name's password."""
    kind, _, rest = header.partition(" ")
    if kind.lower() == "bearer":
        return None, rest.strip()
    if kind.lower() == "basic":
        try:
            name, _, secret = base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None, ""
        return name, secret
    return None, ""


def cookies_of(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for header in headers.getlist("cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            found.setdefault(name, value)
    return found


def is_from_here(headers: Headers) -> bool:
    """Whether the browser reports that the requesting page belongs to this server."""
    origin = headers.get("origin")
    if origin is not None:
        return origin.lower().partition("://")[2] == headers.get("host", "").lower()
    return headers.get("sec-fetch-site") == "same-origin"


def claim_of(scope: Scope) -> AuthResult:
    found: AuthResult = scope["state"]["claim"]
    return found


def identity_of(scope: Scope) -> Identity:
    """Raises RequestError for an anonymous request."""
    return claim_of(scope).granted()
