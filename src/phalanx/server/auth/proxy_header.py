"""Users whom a proxy has authenticated: it names them in a header. From anybody else, that header is removed."""

from __future__ import annotations

import hmac
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from phalanx.server.auth.sign_on import ProxySettings, groups_in, read_secret

SECRET_HEADER = "X-Phalanx-Proxy-Secret"  # noqa: S105 - its name


class ProxiedUser(NamedTuple):
    name: str
    groups: list[str]


class ProxyHeaderMiddleware:
    """The outermost middleware: no other one sees the headers of a client that is not the proxy."""

    def __init__(self, app: ASGIApp, settings: ProxySettings) -> None:
        self.app = app
        self.settings = settings
        self.secret = None if settings.secret_file is None else read_secret(settings.secret_file)
        names = (settings.user_header, settings.groups_header, SECRET_HEADER)
        self.names = frozenset(name.lower().encode("latin-1") for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            user = self._user(headers) if self._is_proxy(scope, headers) else None
            kept = [(name, value) for name, value in scope["headers"] if name.lower() not in self.names]
            scope = {**scope, "headers": kept}
            scope.setdefault("state", {})["proxied_user"] = user
        await self.app(scope, receive, send)

    def _is_proxy(self, scope: Scope, headers: Headers) -> bool:
        # `client` is the address that the proxy forwards; the peer is the one that is connected.
        peer = scope.get("state", {}).get("peer") or scope.get("client")
        if not peer or not self.settings.trusts(str(peer[0])):
            return False
        shown = headers.get(SECRET_HEADER, "")
        return self.secret is None or hmac.compare_digest(shown.encode("latin-1"), self.secret.encode())

    def _user(self, headers: Headers) -> ProxiedUser | None:
        """None for a repeated header: the client may have sent one of them through the proxy."""
        names, groups = (headers.getlist(name) for name in (self.settings.user_header, self.settings.groups_header))
        if len(names) != 1 or len(groups) > 1 or not names[0].strip():
            return None
        return ProxiedUser(names[0].strip(), groups_in(groups[0] if groups else ""))


def with_peer(app: ASGIApp, proxies: str) -> ASGIApp:
    """The application behind uvicorn's reading of X-Forwarded-For, which replaces the address of the client. The
    address of the peer itself stays in the state of the request."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    inner: ASGIApp = ProxyHeadersMiddleware(app, trusted_hosts=proxies)  # type: ignore[assignment, arg-type]

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["peer"] = scope.get("client")
        await inner(scope, receive, send)

    return outer
