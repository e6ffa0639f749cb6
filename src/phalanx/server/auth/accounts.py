"""People who use the server, and their roles.

<home>/users.json     names, roles, and what is left of passwords after scrypt
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import CallError
from phalanx.server.auth.identities import ALL, Role, role_or_least
from phalanx.server.auth.record_file import RecordFile

SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 1000
MOST_PROJECTS = 200  # of one person: lists ask the database for all of them at once
LONGEST_PROJECT = 500
COST, BLOCK, SALT_BYTES, HASH_BYTES = 2**15, 8, 16, 32  # 32 MiB and about a tenth of a second for one try
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z", re.ASCII)


class User(NamedTuple):
    """Times are seconds since the epoch."""

    name: str
    roles: Mapping[str, Role]
    salt: str
    hash: str
    cost: int
    created: float
    changed: float  # when the password was

    def row(self) -> dict[str, Any]:
        return {**self._asdict(), "roles": {project: role.word for project, role in self.roles.items()}}


class Accounts:
    """The people of a home."""

    def __init__(self, home: Path) -> None:
        self.kept = RecordFile(home / "users.json", _decoded)

    def known(self) -> tuple[User, ...]:
        """Raises CallError when the file cannot be read."""
        return self.kept.rows()

    def find(self, name: str) -> User | None:
        return next((user for user in self.known() if user.name == name), None)

    def get(self, name: str) -> User:
        """Raises CallError when there is nobody of this name."""
        found = self.find(name)
        if found is None:
            raise CallError(f"there is no user `{name[:100]}`: `phalanx users list` shows those there are")
        return found

    def add(self, name: str, password: str, roles: Mapping[str, Role]) -> User:
        """Raises CallError when the name is taken or none, or the password too short."""
        check_name(name)
        _check_roles(roles)
        salt, digest, now = *_fresh(password), time.time()
        user = User(name, dict(roles), salt, digest, COST, now, now)
        with self.kept.alone():
            for known in self.known():
                if known.name.lower() == name.lower():
                    raise CallError(f"there is a user `{known.name}` already")
            self._write([*self.known(), user])
        return user

    def give(self, name: str, projects: Iterable[str], role: Role | None) -> User:
        """A role on projects, instead of what there was; None takes it away. Raises CallError."""
        with self.kept.alone():
            user = self.get(name)
            roles = {project: mine for project, mine in user.roles.items() if project not in set(projects)}
            if role is not None:
                roles |= dict.fromkeys(projects, role)
            _check_roles(roles)
            return self._replace(user._replace(roles=roles))

    def set_password(self, name: str, password: str) -> User:
        """Everywhere this user is signed in with the old one, they are not any more. Raises CallError."""
        salt, digest = _fresh(password)
        with self.kept.alone():
            user = self.get(name)._replace(salt=salt, hash=digest, cost=COST, changed=time.time())
            return self._replace(user)

    def remove(self, name: str) -> None:
        """And with them their sessions and tokens. Raises CallError when there is nobody of this name."""
        with self.kept.alone():
            self.get(name)
            self._write([user for user in self.known() if user.name != name])

    def verify(self, name: str, password: str) -> User | None:
        """Whose password it is. For a name that nobody has, as much is computed as for one that somebody has."""
        user = self.find(name)
        salt, cost = (user.salt, user.cost) if user is not None else ("00" * SALT_BYTES, COST)
        digest = _digest(password, salt, cost)
        return user if user is not None and hmac.compare_digest(digest, user.hash) else None

    def _replace(self, user: User) -> User:
        self._write([user if known.name == user.name else known for known in self.known()])
        return user

    def _write(self, users: Iterable[User]) -> None:
        self.kept.write(user.row() for user in users)


def check_name(name: str) -> None:
    """Raises CallError for what cannot be a name."""
    if not _NAME.match(name):
        raise CallError("a name has up to 100 letters, digits and the signs `.`, `_`, `@` and `-`")


def check_project(project: str) -> None:
    if not project.strip() or len(project) > LONGEST_PROJECT or not project.isprintable():
        raise CallError(f"a project's name has 1 to {LONGEST_PROJECT} characters; `{ALL}` stands for all projects")


def _check_roles(roles: Mapping[str, Role]) -> None:
    if len(roles) > MOST_PROJECTS:
        raise CallError(f"one can have roles on {MOST_PROJECTS} projects: give one on all of them, `{ALL}`")
    for project in roles:
        check_project(project)


def _fresh(password: str) -> tuple[str, str]:
    """A salt, and what to keep of a new password. Raises CallError."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise CallError(f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters")
    salt = secrets.token_hex(SALT_BYTES)
    return salt, _digest(password, salt, COST)


def _digest(password: str, salt: str, cost: int) -> str:
    # The same letters may have been typed on another keyboard; and nobody makes us compute with megabytes.
    text = unicodedata.normalize("NFC", password[: LONGEST_PASSWORD + 1]).encode("utf-8", "surrogateescape")
    memory = 2 * 128 * BLOCK * cost
    found = hashlib.scrypt(text, salt=bytes.fromhex(salt), n=cost, r=BLOCK, p=1, maxmem=memory, dklen=HASH_BYTES)
    return found.hex()


def _decoded(row: dict[str, Any]) -> User:
    roles = {str(project): role_or_least(str(role)) for project, role in row["roles"].items()}
    bytes.fromhex(row["salt"])
    return User(
        str(row["name"]),
        roles,
        str(row["salt"]),
        str(row["hash"]),
        int(row["cost"]),
        float(row["created"]),
        float(row["changed"]),
    )
