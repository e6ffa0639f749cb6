"""Who may ask the server for what: tokens, of which the home keeps only hashes, and tokens of runs, of which it keeps
nothing at all.

<home>/tokens.json    names, scopes and hashes of the tokens that were given out
<home>/token          the owner's own token
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from contextlib import AbstractContextManager
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.backends.attempts import write_whole
from phalanx.errors import CallError
from phalanx.scheduler.locks import locked
from phalanx.scheduler.run_tokens import PREFIX, SECRET_BYTES, run_mac, run_token, server_secret

__all__ = ["Identity", "Scope", "Token", "Tokens", "run_token"]

OWNER = "owner"
DAY_S = 86_400.0
_PREFIX = "phx_"
_RUN_TOKEN = re.compile(rf"{PREFIX}_([A-Za-z0-9-]{{1,64}})_([1-9][0-9]{{0,8}})_([0-9a-f]{{64}})\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z", re.ASCII)


class Scope(IntEnum):
    """What a token may do; each may also do what those before it may."""

    READ = 1
    WRITE = 2
    ADMIN = 3


SCOPES = {scope.name.lower(): scope for scope in Scope}


class Token(NamedTuple):
    """What is kept of a token: everything but itself. Times are seconds since the epoch."""

    name: str
    hash: str
    scope: str
    created: float
    expires: float | None = None


class Identity(NamedTuple):
    """Whoever asks. One that has a run may write to that attempt of it alone."""

    name: str
    scope: Scope
    run_id: str | None = None
    attempt: int | None = None


class Tokens:
    """The tokens of a home. A change by another process is seen at the next look."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "tokens.json"
        self._mark: tuple[int, ...] | None = None
        self._known: tuple[Token, ...] = ()
        self._secret: bytes | None = None

    def known(self) -> tuple[Token, ...]:
        """Raises CallError when the file cannot be read: nobody is let in by accident, and nobody is forgotten."""
        try:
            found = self.path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._mark:
                self._known = tuple(_decoded(row) for row in json.loads(self.path.read_bytes())["tokens"])
                self._mark = mark
        except FileNotFoundError:
            self._known, self._mark = (), None
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise CallError(f"{self.path} cannot be read ({fault}): remove it to begin without tokens") from None
        return self._known

    def create(self, name: str, scope: str = "write", days: float | None = None) -> str:
        """A new token, told this once. Raises CallError when the name is taken or none."""
        if not _NAME.match(name):
            raise CallError("a token's name has up to 100 letters, digits and the signs `.`, `_`, `@` and `-`")
        with self._alone():
            if any(token.name == name for token in self.known()):
                raise CallError(f"there is a token `{name}` already: revoke it first, or take another name")
            return self._add(name, scope, days)

    def revoke(self, name: str) -> None:
        """Raises CallError when there is no such token."""
        with self._alone():
            kept = [token for token in self.known() if token.name != name]
            if len(kept) == len(self.known()):
                raise CallError(f"there is no token `{name[:100]}`: `phalanx token list` shows those there are")
            self._write(kept)

    def ensure_owner(self) -> Path:
        """The file with the owner's token, made when there is none that is valid."""
        path = self.home / "token"
        with self._alone():
            try:
                held = path.read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                held = ""
            known = [token for token in self.known() if token.name == OWNER]
            if not (held and any(hmac.compare_digest(token.hash, _hash(held)) for token in known)):
                self._write([token for token in self.known() if token.name != OWNER])
                write_whole(path, (self._add(OWNER, "admin", None) + "\n").encode())
            elif path.stat().st_mode & 0o077:
                path.chmod(0o600)
        return path

    def identify(self, text: str) -> Identity | None:
        """Whose token a text is. Every known one is compared, so that the time it takes tells nothing."""
        if text.startswith(f"{PREFIX}_"):
            return self._identify_run(text)
        asked, found = _hash(text), None
        for token in self.known():
            if hmac.compare_digest(token.hash, asked):
                found = token
        if found is None or (found.expires is not None and found.expires <= time.time()):
            return None
        return Identity(found.name, SCOPES.get(found.scope, Scope.READ))

    def _identify_run(self, text: str) -> Identity | None:
        match = _RUN_TOKEN.match(text)
        if match is None:
            return None
        run_id, attempt = match[1], int(match[2])
        if self._secret is None:
            self._secret = server_secret(self.home)
        if not hmac.compare_digest(run_mac(self._secret, run_id, attempt), match[3]):
            return None
        return Identity(f"run {run_id}", Scope.READ, run_id, attempt)

    def _add(self, name: str, scope: str, days: float | None) -> str:
        if scope not in SCOPES:
            raise CallError(f"a token's scope is one of {', '.join(SCOPES)}")
        text = _PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        now = time.time()
        expires = now + days * DAY_S if days is not None else None
        self._write([*self.known(), Token(name, _hash(text), scope, now, expires)])
        return text

    def _write(self, tokens: list[Token]) -> None:
        content = {"version": 1, "tokens": [token._asdict() for token in tokens]}
        write_whole(self.path, json.dumps(content, indent=1).encode())

    def _alone(self) -> AbstractContextManager[bool]:
        """Two that change the file at once would lose one of the changes."""
        return locked(self.home / "tokens.lock")


def _hash(text: str) -> str:
    """Tokens are long and random: there is nothing to guess that would ask for a slower hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _decoded(row: dict[str, Any]) -> Token:
    expires = row.get("expires")
    return Token(
        str(row["name"]),
        str(row["hash"]),
        str(row["scope"]),
        float(row["created"]),
        float(expires) if expires is not None else None,
    )
