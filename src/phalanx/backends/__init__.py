"""Backends: they render a plan as a job, which a person can read, edit and submit without Phalanx.

A backend is an instance of `contract.Backend`, named by an entry point in the group `phalanx.backends` of this package
or another.
"""

from __future__ import annotations

import sys
from functools import cache

from phalanx.backends.contract import Backend
from phalanx.errors import CallError

GROUP = "phalanx.backends"


def names() -> tuple[str, ...]:
    return _names(tuple(sys.path))


@cache  # a lookup reads the metadata of every installed package
def _names(path: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - where packages are looked for
    from importlib.metadata import entry_points

    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def is_batch(name: str) -> bool:
    """`Backend.is_batch` of a backend; False for this machine, and for one that is no longer installed."""
    return name in names() and find(name).is_batch


@cache
def find(name: str) -> Backend:
    """The backend of that name. Raises CallError if it is not installed, or cannot be loaded."""
    from importlib.metadata import entry_points

    points = list(entry_points(group=GROUP, name=name))
    if not points:
        raise CallError(f"no backend `{name}` is installed; installed: {', '.join(names())}")
    try:
        backend = points[0].load()
    except Exception as fault:  # noqa: BLE001 - code of another package
        raise CallError(f"the backend `{name}` ({points[0].value}) cannot be loaded: {fault}") from None
    if not isinstance(backend, Backend):
        raise CallError(
            f"the backend `{name}` ({points[0].value}) is not an instance of phalanx.backends.contract.Backend"
        )
    return backend
