"""Webhooks: a signed POST to a URL, which must not reach into private networks.

The signature is in the header `X-Phalanx-Signature: t=TIME,v1=HEX`, where HEX is the HMAC-SHA256 of `TIME.BODY` with
the key of the webhook. `X-Phalanx-Delivery` is the same for all tries of a message.

The host is resolved once, all its addresses are checked, and the connection goes to the checked address: a name that
changes its address in between gains nothing. Redirects are not followed, and proxies not used.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import secrets
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from phalanx.atomic_files import write_new
from phalanx.notifications.dispatch import Dispatch, NotSent, read_secret
from phalanx.settings.home_settings import HomeSettings, WebhookSettings

TIMEOUT_S = 10.0
KEY_FILE = "webhook.key"
LONGEST_ANSWER = 64 << 10
_EMBEDDING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")))
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Endpoint(NamedTuple):
    url: str
    settings: WebhookSettings


def endpoint(settings: HomeSettings, target: str) -> Endpoint:
    """The URL that a rule means, and what the home says of it. Raises NotSent."""
    named = {name.casefold(): one for name, one in settings.webhooks.items()}
    if "://" in target:
        host = (urlsplit(target).hostname or "").casefold()
        return Endpoint(target, named.get(host, WebhookSettings()))
    found = named.get(target.casefold())
    url = (found.url or read_secret(found.url_file, None)) if found is not None else None
    if found is None or not url:
        raise NotSent(f"config.yml of the home has no webhook `{target[:100]}` with a URL", may_retry=False)
    return Endpoint(url, found)


def post(home: Path, settings: HomeSettings, target: str, dispatch: Dispatch) -> None:
    """Raises NotSent."""
    place = endpoint(settings, target)
    key = read_secret(place.settings.key_file, place.settings.key_env) or home_key(home)
    parts = _checked(place)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _resolved(parts.hostname, port, is_private=place.settings.is_private)
    body, now = dispatch.body, str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "phalanx",
        "X-Phalanx-Delivery": dispatch.id,
        "X-Phalanx-Event": str(dispatch.message.data["event"]),
        "X-Phalanx-Signature": f"t={now},v1={signature(key, now, body)}",
    }
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    _exchange(_PinnedConnection(parts.scheme, parts.hostname, port, address), path, body, headers)


def signature(key: str, now: str, body: bytes) -> str:
    return hmac.new(key.encode(), now.encode() + b"." + body, hashlib.sha256).hexdigest()


def home_key(home: Path) -> str:
    """The key of webhooks that have none of their own; created once. Only the owner can read it."""
    path = home / KEY_FILE
    with suppress(FileExistsError):
        if not path.exists():
            write_new(path, f"{secrets.token_hex(32)}\n".encode())
    found = read_secret(str(path), None)
    assert found is not None
    return found


def _checked(place: Endpoint) -> SplitResult:
    """The parts of a URL. Raises NotSent: plain HTTP is for private networks only."""
    try:
        parts = urlsplit(place.url)
        _ = parts.port
    except ValueError:
        raise NotSent("not a valid URL", may_retry=False) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise NotSent("the URL of a webhook is https://host/path", may_retry=False)
    if any(character <= " " or character > "~" for character in place.url):
        raise NotSent("the URL of a webhook has characters that no URL has", may_retry=False)
    if parts.scheme == "http" and not place.settings.is_private:
        raise NotSent(f"use https for {parts.hostname}: others on the network can read http", may_retry=False)
    return parts


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet, and no other is hidden in it."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None:
        return is_public(mapped)
    if any(address in network for network in _EMBEDDING if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


def _resolved(host: str, port: int, *, is_private: bool) -> str:
    """An address of the host. Raises NotSent if one of its addresses is private, unless that is allowed."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as fault:
        raise NotSent(f"cannot resolve {host}: {fault}", may_retry=True) from None
    found = [str(row[4][0]).partition("%")[0] for row in rows]
    hidden = [address for address in found if not is_public(ipaddress.ip_address(address))]
    if hidden and not is_private:
        why = f"{host} is {hidden[0]}, an address of a private network: allow it in config.yml of the home with"
        raise NotSent(f"{why} `webhooks: {{{host}: {{private: true}}}}`", may_retry=False)
    return found[0]


class _PinnedConnection(http.client.HTTPConnection):
    """Connects to an address that was checked, whatever the name of the host means by now."""

    def __init__(self, scheme: str, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self.address = address
        self.context = ssl.create_default_context() if scheme == "https" else None
        if self.context is not None:
            self.default_port = 443

    def connect(self) -> None:
        self.sock = socket.create_connection((self.address, self.port), TIMEOUT_S)
        if self.context is not None:
            self.sock = self.context.wrap_socket(self.sock, server_hostname=self.host)


def _exchange(connection: _PinnedConnection, path: str, body: bytes, headers: dict[str, str]) -> None:
    place = f"{connection.host}:{connection.port}"
    try:
        try:
            connection.connect()
        except ssl.SSLError as fault:
            raise NotSent(f"no trusted connection to {place}: {fault}", may_retry=False) from None
        except OSError as fault:
            raise NotSent(f"cannot connect to {place}: {fault}", may_retry=True) from None
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read(LONGEST_ANSWER)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            raise NotSent(f"{place} gave no answer, and may have got it: {fault}", may_retry=False) from None
    finally:
        connection.close()
    if 300 <= answer.status < 400:
        raise NotSent(f"{place} redirects, which is not followed: name the final address", may_retry=False)
    if answer.status >= 400:
        is_busy = answer.status == 429 or answer.status >= 500
        raise NotSent(f"{place} answered with {answer.status}", may_retry=is_busy)
