"""User accounts and their roles.

<home>/users.json     names, roles, and scrypt hashes of passwords
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
from phalanx.home.record_file import RecordFile
from phalanx.naming import has_control_characters
from phalanx.server.auth.identities import ALL, Role, role_or_least

SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 1000
MOST_PROJECTS = 200  # per user: lists query the database for all of them at once
LONGEST_PROJECT = 500
COST, BLOCK, SALT_BYTES, HASH_BYTES = 2**15, 8, 16, 32  # 32 MiB and about 0.1 s per attempt
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z", re.ASCII)


class User(NamedTuple):
    """Times are seconds since the epoch."""

    name: str
    roles: Mapping[str, Role]
    salt: str
    hash: str
    cost: int
    created: float
    changed: float  # when the password was set
    subject: str | None = None  # who this is at the identity provider or proxy; such a user has no password

    def row(self) -> dict[str, Any]:
        return {**self._asdict(), "roles": {project: role.word for project, role in self.roles.items()}}


class Accounts:
    """The user accounts of a home."""

    def __init__(self, home: Path) -> None:
        self.kept: RecordFile[tuple[User, ...]] = RecordFile(
            home / "users.json", "users", lambda rows: tuple(map(_decoded, rows)), ()
        )

    def known(self) -> tuple[User, ...]:
        """Raises CallError when the file cannot be read."""
        return self.kept.rows()

    def find(self, name: str) -> User | None:
        return next((user for user in self.known() if user.name == name), None)

    def get(self, name: str) -> User:
        """Raises CallError when no user has this name."""
        found = self.find(name)
        if found is None:
            raise CallError(f"there is no user `{name[:100]}`: `phalanx users list` shows all users")
        return found

    def add(self, name: str, password: str, roles: Mapping[str, Role]) -> User:
        """Raises CallError when the name is taken or invalid, or the password is too short."""
        check_name(name)
        _check_roles(roles)
        salt, digest, now = *_fresh(password), time.time()
        user = User(name, dict(roles), salt, digest, COST, now, now)
        with self.kept.alone():
            for known in self.known():
                if known.name.lower() == name.lower():
                    raise CallError(f"a user named `{known.name}` already exists")
            self._write([*self.known(), user])
        return user

    def give(self, name: str, projects: Iterable[str], role: Role | None) -> User:
        """Replace the user's role on these projects; None removes it. Raises CallError."""
        with self.kept.alone():
            user = self.get(name)
            roles = {project: mine for project, mine in user.roles.items() if project not in set(projects)}
            if role is not None:
                roles |= dict.fromkeys(projects, role)
            _check_roles(roles)
            return self._replace(user._replace(roles=roles))

    def signed_on(self, subject: str, name: str, roles: Mapping[str, Role]) -> User:
        """The user of this subject with these roles; added at the first sign-on. A later one does not change the name.
        Raises CallError when the name is invalid, or belongs to another user."""
        known = next((user for user in self.known() if user.subject == subject), None)
        if known is not None and known.roles == roles:
            return known
        check_name(name)
        _check_roles(roles)
        with self.kept.alone():
            for user in self.known():
                if user.subject == subject:
                    return self._replace(user._replace(roles=dict(roles)))
            for user in self.known():
                if user.name.lower() == name.lower():
                    raise CallError(f"a user named `{user.name}` already exists and is not the one who signs on")
            now = time.time()
            # No password has this hash. Sessions depend on it: they end when the user is removed.
            added = User(name, dict(roles), "", secrets.token_hex(HASH_BYTES), 0, now, now, subject)
            self._write([*self.known(), added])
            return added

    def set_password(self, name: str, password: str) -> User:
        """Ends every session that was opened with the old password. Raises CallError."""
        salt, digest = _fresh(password)
        with self.kept.alone():
            user = self.get(name)
            if user.subject is not None:
                raise CallError(f"`{user.name}` signs on through the identity provider and has no password here")
            return self._replace(user._replace(salt=salt, hash=digest, cost=COST, changed=time.time()))

    def remove(self, name: str) -> None:
        """Removes the user's sessions and tokens as well. Raises CallError when no user has this name."""
        with self.kept.alone():
            self.get(name)
            self._write([user for user in self.known() if user.name != name])

    def verify(self, name: str, password: str) -> User | None:
        """The user with this name and password. An unknown name costs as much computation as a known one, so that
        timing does not reveal which names exist."""
        user = self.find(name)
        if user is not None and user.subject is not None:
            user = None
        salt, cost = (user.salt, user.cost) if user is not None else ("00" * SALT_BYTES, COST)
        digest = _digest(password, salt, cost)
        return user if user is not None and hmac.compare_digest(digest, user.hash) else None

    def _replace(self, user: User) -> User:
        self._write([user if known.name == user.name else known for known in self.known()])
        return user

    def _write(self, users: Iterable[User]) -> None:
        self.kept.write([user.row() for user in users])


def check_name(name: str) -> None:
    """Raises CallError for an invalid name."""
    if not _NAME.match(name):
        raise CallError("a name has 1 to 100 letters, digits or the characters `.`, `_`, `@` and `-`")


def check_project(project: str) -> None:
    if not project.strip() or len(project) > LONGEST_PROJECT or has_control_characters(project):
        raise CallError(
            f"a project name has 1 to {LONGEST_PROJECT} characters without line breaks; `{ALL}` means all projects"
        )


def _check_roles(roles: Mapping[str, Role]) -> None:
    if len(roles) > MOST_PROJECTS:
        raise CallError(
            f"a user can have roles on at most {MOST_PROJECTS} projects: grant one on all projects, `{ALL}`"
        )
    for project in roles:
        check_project(project)


def _fresh(password: str) -> tuple[str, str]:
    """A salt and the hash of a new password. Raises CallError."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise CallError(f"a password must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters")
    salt = secrets.token_hex(SALT_BYTES)
    return salt, _digest(password, salt, COST)


def _digest(password: str, salt: str, cost: int) -> str:
    # Normalise: keyboards encode the same letters differently. Limit the length: hashing megabytes would be a denial of
    # service.
    text = unicodedata.normalize("NFC", password[: LONGEST_PASSWORD + 1]).encode("utf-8", "surrogatepass")
    memory = 2 * 128 * BLOCK * cost
    found = hashlib.scrypt(text, salt=bytes.fromhex(salt), n=cost, r=BLOCK, p=1, maxmem=memory, dklen=HASH_BYTES)
    return found.hex()


def _decoded(row: dict[str, Any]) -> User:
    roles = {str(project): role_or_least(str(role)) for project, role in row["roles"].items()}
    bytes.fromhex(row["salt"])
    subject = row.get("subject")
    return User(
        str(row["name"]),
        roles,
        str(row["salt"]),
        str(row["hash"]),
        int(row["cost"]),
        float(row["created"]),
        float(row["changed"]),
        str(subject) if subject is not None else None,
    )
