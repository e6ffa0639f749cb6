"""Browser sessions: cookies that the server verifies without storing them.

A cookie holds its owner, its expiry, and a MAC over both and over the stored hash of the owner's password or token.
When that hash changes, the cookie becomes invalid.

<home>/ended-sessions.json  hashes of the cookies that were signed out before they expired
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from pathlib import Path

from phalanx.home.record_file import RecordFile
from phalanx.home.run_tokens import server_secret
from phalanx.server.auth.accounts import Accounts
from phalanx.server.auth.identities import Identity
from phalanx.server.auth.tokens import Tokens

LIFE_S = 7 * 86_400
USER, TOKEN = "user", "token"  # kind of credential that opened the session
_VALUE = re.compile(r"(\d{1,12})~(user|token)~([A-Za-z0-9._@-]{1,100})~([0-9a-f]{16})~([0-9a-f]{64})\Z", re.ASCII)


class Sessions:
    def __init__(self, home: Path, tokens: Tokens, accounts: Accounts) -> None:
        self.home = home
        self.tokens = tokens
        self.accounts = accounts
        self._key: bytes | None = None
        self.ended = RecordFile[dict[str, int]](home / "ended-sessions.json", "sessions", dict, {})

    @property
    def key(self) -> bytes:
        if self._key is None:
            self._key = hmac.digest(server_secret(self.home), b"phalanx sessions 1", "sha256")
        return self._key

    @property
    def cookie(self) -> str:
        """The cookie name. Browsers share one cookie jar for all ports of a host, so every server needs its own
        name."""
        return f"phalanx-{hashlib.sha256(self.key).hexdigest()[:8]}"

    def open(self, kind: str, name: str, life_s: float = LIFE_S) -> str:
        """The cookie value for a caller who has just authenticated."""
        content = f"{int(time.time() + life_s)}~{kind}~{name}~{secrets.token_hex(8)}"  # no two sessions are equal
        return f"{content}~{self._mac(content, self._owner(kind, name)[0])}"

    def identify(self, value: str) -> Identity | None:
        """The owner of a cookie value; None when it is invalid or expired. Raises CallError when the home's files
        cannot be read."""
        match = _VALUE.match(value)
        if match is None:
            return None
        expires, kind, name = int(match[1]), match[2], match[3]
        stamp, found = self._owner(kind, name)
        mac = self._mac(value.rpartition("~")[0], stamp)
        is_valid = hmac.compare_digest(mac, match[5]) and time.time() < expires <= time.time() + LIFE_S
        if is_valid and _hash(value) in self.ended.rows():
            return None
        return found._replace(kind="session") if is_valid and found is not None else None

    def end(self, value: str) -> None:
        """End the session of a cookie value: a copy of it is of no use. Raises CallError, OSError."""
        if self.identify(value) is None:
            return
        with self.ended.alone():
            now = time.time()
            kept = {hash_: expires for hash_, expires in self.ended.rows().items() if expires > now}
            self.ended.write({**kept, _hash(value): int(value.partition("~")[0])})

    def _owner(self, kind: str, name: str) -> tuple[str, Identity | None]:
        """The stored hash of an owner, and the owner if there is one: the cookie holds only the name, and permissions
        are looked up for each request."""
        if kind == USER:
            user = self.accounts.find(name)
            return (user.hash, Identity(user.name, user.roles, user=user.name)) if user is not None else ("", None)
        token = next((token for token in self.tokens.known() if token.name == name), None)
        return (token.hash, self.tokens.identity(token)) if token is not None else ("", None)

    def _mac(self, content: str, stamp: str) -> str:
        return hmac.new(self.key, f"{content}\n{stamp}".encode(), hashlib.sha256).hexdigest()


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode("ascii", "replace")).hexdigest()
