"""Access tokens. The home stores only hashes of them, and nothing at all for the tokens of runs.

<home>/tokens.json    names, roles and hashes of issued tokens
<home>/token          the owner's own token
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.record_file import RecordFile
from phalanx.home.run_tokens import PREFIX, SECRET_BYTES, run_mac, run_token, server_secret
from phalanx.home.stars import OWNER
from phalanx.server.auth.accounts import MOST_PROJECTS, Accounts, check_project
from phalanx.server.auth.identities import ALL, Identity, least, role_named, role_or_least

__all__ = ["Token", "Tokens", "is_token", "run_token"]

DAY_S = 86_400.0
_PREFIX = "phx_"
_RUN_TOKEN = re.compile(rf"{PREFIX}_([A-Za-z0-9-]{{1,64}})_([1-9][0-9]{{0,8}})_([0-9a-f]{{64}})\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z", re.ASCII)


class Token(NamedTuple):
    """The stored record of a token, without its secret. Times are seconds since the epoch."""

    name: str
    hash: str
    role: str
    created: float
    expires: float | None = None
    user: str | None = None  # the owner: a token never grants more than its owner has
    projects: tuple[str, ...] | None = None  # None means all

    @property
    def is_over(self) -> bool:
        return self.expires is not None and self.expires <= time.time()


class Tokens:
    """The tokens of a home. A change by another process is visible on the next access."""

    def __init__(self, home: Path, accounts: Accounts | None = None) -> None:
        self.home = home
        self.accounts = accounts or Accounts(home)
        self.kept: RecordFile[tuple[Token, ...]] = RecordFile(
            home / "tokens.json", "tokens", lambda rows: tuple(map(_decoded, rows)), ()
        )
        self._secret: bytes | None = None

    @property
    def path(self) -> Path:
        return self.kept.path

    def known(self) -> tuple[Token, ...]:
        """Raises CallError when the file cannot be read."""
        return self.kept.rows()

    def create(
        self,
        name: str,
        role: str = "editor",
        days: float | None = None,
        *,
        user: str | None = None,
        projects: Iterable[str] | None = None,
    ) -> str:
        """Create a token and return its secret, which is shown only once. Raises CallError when the name is taken or
        invalid."""
        if not _NAME.match(name):
            raise CallError("a token name has 1 to 100 letters, digits or the characters `.`, `_`, `@` and `-`")
        several = tuple(dict.fromkeys(projects)) if projects is not None else None
        for project in several or ():
            check_project(project)
        if several is not None and len(several) > MOST_PROJECTS:
            raise CallError(f"a token can be limited to at most {MOST_PROJECTS} projects, or be valid for all")
        if user is not None:
            self.accounts.get(user)
        with self.kept.alone():
            if any(token.name == name for token in self.known()):
                raise CallError(f"a token named `{name}` already exists: revoke it first, or choose another name")
            return self._add(name, role, days, user, several)

    def revoke(self, name: str) -> None:
        """Raises CallError when no such token exists."""
        with self.kept.alone():
            kept = [token for token in self.known() if token.name != name]
            if len(kept) == len(self.known()):
                raise CallError(f"there is no token `{name[:100]}`: `phalanx token list` shows all tokens")
            self._write(kept)

    def ensure_owner(self) -> Path:
        """The file with the owner's token; created if there is no valid one."""
        path = self.home / "token"
        with self.kept.alone():
            try:
                held = path.read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                held = ""
            known = [token for token in self.known() if token.name == OWNER]
            if not (held and any(hmac.compare_digest(token.hash, _hash(held)) for token in known)):
                self._write([token for token in self.known() if token.name != OWNER])
                write_atomic(path, (self._add(OWNER, "admin", None) + "\n").encode())
            elif path.stat().st_mode & 0o077:
                path.chmod(0o600)
        return path

    def identify(self, text: str) -> Identity | None:
        """The identity that a token belongs to."""
        if text.startswith(f"{PREFIX}_"):
            return self._identify_run(text)
        found = self.find(text)
        return self.identity(found) if found is not None else None

    def find(self, text: str) -> Token | None:
        """Compares with every known token, so that timing reveals nothing."""
        asked, found = _hash(text), None
        for token in self.known():
            if hmac.compare_digest(token.hash, asked):
                found = token
        return found

    def identity(self, token: Token) -> Identity | None:
        """The current permissions of a token; None when it has expired or its owner no longer exists."""
        if token.is_over:
            return None
        role = role_or_least(token.role)
        roles = dict.fromkeys((ALL,) if token.projects is None else token.projects, role)
        if token.user is not None:
            user = self.accounts.find(token.user)
            if user is None or user.created > token.created:  # or a new user who has taken the name since
                return None
            roles = least(roles, user.roles)
        return Identity(token.name, roles, user=token.user)

    def _identify_run(self, text: str) -> Identity | None:
        match = _RUN_TOKEN.match(text)
        if match is None:
            return None
        run_id, attempt = match[1], int(match[2])
        if self._secret is None:
            self._secret = server_secret(self.home)
        if not hmac.compare_digest(run_mac(self._secret, run_id, attempt), match[3]):
            return None
        return Identity(f"run {run_id}", {}, run_id, attempt, kind="run")

    def _add(
        self,
        name: str,
        role: str,
        days: float | None,
        user: str | None = None,
        projects: tuple[str, ...] | None = None,
    ) -> str:
        role = role_named(role).word
        text = _PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        now = time.time()
        expires = now + days * DAY_S if days is not None else None
        self._write([*self.known(), Token(name, _hash(text), role, now, expires, user, projects)])
        return text

    def _write(self, tokens: list[Token]) -> None:
        self.kept.write([token._asdict() for token in tokens])


def is_token(text: str) -> bool:
    """Whether a string has the form of a token, as opposed to a password."""
    return text.startswith((_PREFIX, f"{PREFIX}_"))


def _hash(text: str) -> str:
    """Tokens are long and random, so a slow hash is not needed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _decoded(row: dict[str, Any]) -> Token:
    expires, user, projects = row.get("expires"), row.get("user"), row.get("projects")
    return Token(
        str(row["name"]),
        str(row["hash"]),
        str(row.get("role") or row["scope"]),  # the field's older name
        float(row["created"]),
        float(expires) if expires is not None else None,
        str(user) if user is not None else None,
        tuple(str(project) for project in projects) if projects is not None else None,
    )
