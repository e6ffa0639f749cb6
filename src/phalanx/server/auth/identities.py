"""Who asks, and what they may do on which projects."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from phalanx.errors import CallError

ALL = "*"


class Role(IntEnum):
    """What one may do; each may also do what those before it may."""

    VIEWER = 1
    EDITOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES = {role.word: role for role in Role}
# What tokens called them before there were projects to have a role on.
OLD_WORDS = {"read": Role.VIEWER, "write": Role.EDITOR}


def role_named(word: str) -> Role:
    """Raises CallError for anything but a role."""
    found = {**ROLES, **OLD_WORDS}.get(word)
    if found is None:
        raise CallError(f"a role is one of {', '.join(ROLES)} (or, as before, read, write, admin)")
    return found


def role_or_least(word: str) -> Role:
    """A newer Phalanx may know more roles; what this one does not know must not open more."""
    return {**ROLES, **OLD_WORDS}.get(word, Role.VIEWER)


class Identity(NamedTuple):
    """Whoever asks. One that has a run is that run itself, and may write to that attempt of it alone."""

    name: str
    roles: Mapping[str, Role]  # by project; `*` is all of them
    run_id: str | None = None
    attempt: int | None = None
    address: str = ""
    kind: str = "token"  # token, user, run or session

    def role_on(self, project: str) -> Role | None:
        found = [role for place in (ALL, project) if (role := self.roles.get(place)) is not None]
        return max(found) if found else None

    def has(self, role: Role, project: str = ALL) -> bool:
        mine = self.role_on(project)
        return mine is not None and mine >= role

    def projects(self, role: Role) -> frozenset[str] | None:
        """On which projects one has at least this role; None: on all."""
        if self.has(role):
            return None
        return frozenset(project for project, mine in self.roles.items() if project != ALL and mine >= role)


def least(one: Mapping[str, Role], other: Mapping[str, Role]) -> dict[str, Role]:
    """What both allow."""
    found: dict[str, Role] = {}
    for place in {*one, *other}:
        roles = [max((given[key] for key in (place, ALL) if key in given), default=None) for given in (one, other)]
        if roles[0] is not None and roles[1] is not None:
            found[place] = min(roles[0], roles[1])
    return found
