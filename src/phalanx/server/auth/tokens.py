"""Who may ask the server for what: tokens, of which the home keeps only hashes, and tokens of runs, of which it keeps
nothing at all.

<home>/tokens.json    names, roles and hashes of the tokens that were given out
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
from phalanx.home.run_tokens import PREFIX, SECRET_BYTES, run_mac, run_token, server_secret
from phalanx.server.auth.accounts import MOST_PROJECTS, Accounts, check_project
from phalanx.server.auth.identities import ALL, Identity, least, role_named, role_or_least
from phalanx.server.auth.record_file import RecordFile

__all__ = ["Token", "Tokens", "is_token", "run_token"]

OWNER = "owner"
DAY_S = 86_400.0
_PREFIX = "phx_"
_RUN_TOKEN = re.compile(rf"{PREFIX}_([A-Za-z0-9-]{{1,64}})_([1-9][0-9]{{0,8}})_([0-9a-f]{{64}})\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z", re.ASCII)


class Token(NamedTuple):
    """What is kept of a token: everything but itself. Times are seconds since the epoch."""

    name: str
    hash: str
    role: str
    created: float
    expires: float | None = None
    user: str | None = None  # whose it is: it never opens more than they may
    projects: tuple[str, ...] | None = None  # None: all

    @property
    def is_over(self) -> bool:
        return self.expires is not None and self.expires <= time.time()


class Tokens:
    """The tokens of a home. A change by another process is seen at the next look."""

    def __init__(self, home: Path, accounts: Accounts | None = None) -> None:
        self.home = home
        self.accounts = accounts or Accounts(home)
        self.kept = RecordFile(home / "tokens.json", _decoded)
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
        """A new token, told this once. Raises CallError when the name is taken or none."""
        if not _NAME.match(name):
            raise CallError("a token's name has up to 100 letters, digits and the signs `.`, `_`, `@` and `-`")
        several = tuple(dict.fromkeys(projects)) if projects is not None else None
        for project in several or ():
            check_project(project)
        if several is not None and len(several) > MOST_PROJECTS:
            raise CallError(f"a token can be for {MOST_PROJECTS} projects, or for all")
        if user is not None:
            self.accounts.get(user)
        with self.kept.alone():
            if any(token.name == name for token in self.known()):
                raise CallError(f"there is a token `{name}` already: revoke it first, or take another name")
            return self._add(name, role, days, user, several)

    def revoke(self, name: str) -> None:
        """Raises CallError when there is no such token."""
        with self.kept.alone():
            kept = [token for token in self.known() if token.name != name]
            if len(kept) == len(self.known()):
                raise CallError(f"there is no token `{name[:100]}`: `phalanx token list` shows those there are")
            self._write(kept)

    def ensure_owner(self) -> Path:
        """The file with the owner's token, made when there is none that is valid."""
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
        """Whose token a text is."""
        if text.startswith(f"{PREFIX}_"):
            return self._identify_run(text)
        found = self.find(text)
        return self.identity(found) if found is not None else None

    def find(self, text: str) -> Token | None:
        """Every known one is compared, so that the time it takes tells nothing."""
        asked, found = _hash(text), None
        for token in self.known():
            if hmac.compare_digest(token.hash, asked):
                found = token
        return found

    def identity(self, token: Token) -> Identity | None:
        """What a token opens now; None when it is over, or whoever it belongs to is gone."""
        if token.is_over:
            return None
        role = role_or_least(token.role)
        roles = dict.fromkeys((ALL,) if token.projects is None else token.projects, role)
        if token.user is not None:
            user = self.accounts.find(token.user)
            if user is None or user.created > token.created:  # or one who has taken the name since
                return None
            roles = least(roles, user.roles)
        return Identity(token.name, roles)

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
        self.kept.write(token._asdict() for token in tokens)


def is_token(text: str) -> bool:
    """Whether a text is meant as a token; a password is not."""
    return text.startswith((_PREFIX, f"{PREFIX}_"))


def _hash(text: str) -> str:
    """Tokens are long and random: there is nothing to guess that would ask for a slower hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _decoded(row: dict[str, Any]) -> Token:
    expires, user, projects = row.get("expires"), row.get("user"), row.get("projects")
    return Token(
        str(row["name"]),
        str(row["hash"]),
        str(row.get("role") or row["scope"]),  # what it was called before
        float(row["created"]),
        float(expires) if expires is not None else None,
        str(user) if user is not None else None,
        tuple(str(project) for project in projects) if projects is not None else None,
    )
