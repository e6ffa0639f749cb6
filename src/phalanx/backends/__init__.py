"""Plan to Job: text that a person can read, edit and submit without us.

A backend is a module of this package named in the entry points `phalanx.backends`, or another package's.
"""

from __future__ import annotations

from phalanx.backends.contract import Backend
from phalanx.errors import CallError


def names() -> tuple[str, ...]:
    from importlib.metadata import entry_points

    return tuple(sorted(point.name for point in entry_points(group="phalanx.backends")))


def find(name: str) -> Backend:
    """The backend of that name. Raises CallError when none is installed."""
    from importlib.metadata import entry_points

    points = list(entry_points(group="phalanx.backends", name=name))
    if not points:
        raise CallError(f"no backend `{name}` is installed; there is: {', '.join(names())}")
    backend: Backend = points[0].load()
    return backend
