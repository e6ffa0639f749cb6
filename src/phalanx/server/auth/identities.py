"""The caller's identity, and its roles on projects."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import IntEnum
from typing import NamedTuple

from phalanx.errors import CallError
from phalanx.store.project_scope import ProjectScope, enclosing_projects

ALL = "*"


class Role(IntEnum):
    """Roles, in ascending order: each includes the permissions of those before it."""

    VIEWER = 1
    EDITOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES = {role.word: role for role in Role}
# Role names of older tokens, from before roles per project.
OLD_WORDS = {"read": Role.VIEWER, "write": Role.EDITOR}


def role_named(word: str) -> Role:
    """Raises CallError for an unknown role."""
    found = {**ROLES, **OLD_WORDS}.get(word)
    if found is None:
        raise CallError(f"a role is one of {', '.join(ROLES)} (the old names read, write and admin also work)")
    return found


def role_or_least(word: str) -> Role:
    """A newer Phalanx may define more roles; an unknown role must not grant anything."""
    return {**ROLES, **OLD_WORDS}.get(word, Role.VIEWER)


def _above(project: str) -> tuple[str, ...]:
    """Where a role on a project may be given: on itself, on one that it is nested in, or on all."""
    return (ALL, *enclosing_projects(project))


class Identity(NamedTuple):
    """The caller. An identity with a run is that run itself, and may write to that attempt only."""

    name: str
    roles: Mapping[str, Role]  # by project, and those nested in it; `*` means all projects
    run_id: str | None = None
    attempt: int | None = None
    address: str = ""
    kind: str = "token"  # token, user, run, session or proxy
    user: str | None = None  # the person, also behind a session or a token of their own

    def role_on(self, project: str) -> Role | None:
        found = [role for place in _above(project) if (role := self.roles.get(place)) is not None]
        return max(found) if found else None

    def has(self, role: Role, project: str = ALL) -> bool:
        mine = self.role_on(project)
        return mine is not None and mine >= role

    def user_of(self, wanted: str | None) -> str | None:
        """The user of a run that the caller creates: only an admin may name another user."""
        return wanted if self.has(Role.ADMIN) else self.name

    def permissions(self) -> Hashable:
        """Equal for callers who may do the same."""
        return self.run_id, self.attempt, frozenset(self.roles.items())

    def cache_key(self) -> Hashable:
        """Equal for callers who get the same answers: the same name with the same permissions."""
        return self.name, self.kind, self.permissions()

    def projects(self, role: Role) -> ProjectScope | None:
        """The projects on which the caller has at least this role, with those nested in them; None means all."""
        if self.has(role):
            return None
        return ProjectScope(project for project, mine in self.roles.items() if project != ALL and mine >= role)


def least(one: Mapping[str, Role], other: Mapping[str, Role]) -> dict[str, Role]:
    """The permissions that both identities have."""
    found: dict[str, Role] = {}
    for place in {*one, *other}:
        roles = [max((given[key] for key in _above(place) if key in given), default=None) for given in (one, other)]
        if roles[0] is not None and roles[1] is not None:
            found[place] = min(roles[0], roles[1])
    return found
