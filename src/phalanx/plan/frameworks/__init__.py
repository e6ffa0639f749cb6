"""Frameworks: one file each defines its roles and what its replicas need to find each other.

A framework is a module in this package with a `FRAMEWORK`, or an installed package's entry point in the group
`phalanx.frameworks`. Nothing else names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from phalanx.placeholders import SELF, Each, Hole, Value, host, interface, own, port
from phalanx.plan.model import Member, MemberKind
from phalanx.spec.model import EMPTY, Build, Replicas


class ProcessGroup(NamedTuple):
    """The processes of a distributed run, and the parts of the file that a framework may use."""

    members: tuple[Member, ...]
    roles: Mapping[str, int]
    run_id: str
    command: str
    replicas: Replicas
    build: Build | None

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def nodes(self) -> int:
        """Number of replicas."""
        return self.members[-1].node + 1

    @property
    def first(self) -> Member:
        return self.members[0]

    def addresses(self, role: str) -> Each:
        """The addresses of a role's members as the inside of a JSON list."""
        return Each(role, ('"', host(), ":", port(), '"'), ", ")


def _nothing(_: Member) -> Mapping[str, Value]:
    return EMPTY


def by_kind(make: Callable[[MemberKind], Mapping[str, Value]]) -> Callable[[Member], Mapping[str, Value]]:
    """`Wiring.own` for members that differ only in their own numbers (`own("rank")`, `host(SELF)`): made once for each
    kind, so that plans and jobs hold it once, too."""
    made: dict[tuple[str, int, int, int], Mapping[str, Value]] = {}

    def own_of(member: Member) -> Mapping[str, Value]:
        key = (member.role, member.local, member.local_size, member.gpus)
        if key not in made:
            made[key] = make(member.kind)
        return made[key]

    return own_of


class Wiring(NamedTuple):
    """What a framework adds to the run.

    `own` are the variables of one member: use `by_kind` if they depend only on its kind and its own numbers. The
    machine and the file override `defaults`. `meets` and `service` are those of the plan. `launch` is `each`
    when every replica runs the command itself, `mpirun` when `launcher` starts them all, `own` when the user's
    command does so, in the first replica. `serving` are the roles that only serve: the run has succeeded when all other
    replicas have, and these are then ended. None: only the framework's `ps_role`.
    """

    shared: Mapping[str, Value] = EMPTY
    own: Callable[[Member], Mapping[str, Value]] = _nothing
    defaults: Mapping[str, Value] = EMPTY
    meets: tuple[str, ...] = ()
    service: Mapping[str, int] | None = None
    launch: str = "each"
    launcher: tuple[Value, ...] = ()
    serving: tuple[str, ...] | None = None
    notes: tuple[tuple[str, str], ...] = ()  # (path in the file, message)


class Framework(NamedTuple):
    """One way to wire replicas. `ps_role` is the role of the file's `ps`; None if not supported. `launchers` match a
    command that starts the processes of its replica itself; None if a replica has never more than one.
    `symptoms` match messages of replicas that lost another one: a replica that prints one did not fail first.
    """

    wire: Callable[[ProcessGroup], Wiring]
    ps_role: str | None = None
    has_master: bool = True
    launchers: re.Pattern[str] | None = None
    symptoms: tuple[str, ...] = ()


def starting(*programs: str) -> re.Pattern[str]:
    """A pattern for a command line that starts with one of these, also after `&&`, `||`, `;` or variables."""
    return re.compile(
        rf"(?:\A|&&|\|\||;)\s*"  # at the start of the line, or of a later command in it
        rf"(?:\w+=\S*\s+)*(?:\S*/)?(?:{'|'.join(programs)})(?:\s|\Z)"
    )


def known() -> tuple[str, ...]:
    """The names of all frameworks that can be distributed."""
    from importlib.metadata import entry_points

    return tuple(sorted({*_built_in(), *(point.name for point in entry_points(group="phalanx.frameworks"))}))


def find(name: str) -> Framework | None:
    """The framework of that name, or None."""
    if name in _built_in():
        from importlib import import_module

        found = import_module(f"{__name__}.{name}").FRAMEWORK
    else:
        from importlib.metadata import entry_points

        points = list(entry_points(group="phalanx.frameworks", name=name))
        found = points[0].load() if points else None
    return found if isinstance(found, Framework) else None


@lru_cache(maxsize=1)
def _built_in() -> frozenset[str]:
    files = (name for folder in __path__ for name in os.listdir(folder))
    return frozenset(name.removesuffix(".py") for name in files if name.endswith(".py") and name != "__init__.py")


__all__ = [
    "SELF",
    "Each",
    "Framework",
    "Hole",
    "Member",
    "MemberKind",
    "ProcessGroup",
    "Value",
    "Wiring",
    "by_kind",
    "find",
    "host",
    "interface",
    "known",
    "own",
    "port",
    "starting",
]
