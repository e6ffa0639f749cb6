"""Sections of `environment` that installed backends of other packages add: `environment.NAME`.

A backend is known by its entry point in the group `phalanx.backends` and has its section as the attribute `settings`,
a shape. Finding entry points takes a while, and loading a backend longer: it is done only for a file that has a key
which no built-in section explains, and for the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from phalanx.errors import CallError
from phalanx.spec.shapes import Field

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "phalanx.backends"


def names() -> tuple[str, ...]:
    """The installed backends, ours included."""
    from importlib.metadata import entry_points

    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def fields(built_in: Container[str]) -> Mapping[str, Field]:
    """The sections of all installed backends except the built-in ones. Raises CallError for a backend that cannot be
    loaded."""
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=GROUP) if point.name not in built_in}
    found = {name: _section(points[name]) for name in sorted(points)}
    return {name: section for name, section in found.items() if section is not None}


def _section(point: EntryPoint) -> Field | None:
    try:
        shape = getattr(point.load(), "settings", None)
    except Exception as fault:  # noqa: BLE001 - code of another package
        raise CallError(f"the backend `{point.name}` ({point.value}) cannot be loaded: {fault}") from None
    return None if shape is None else Field(shape, f"Settings of the backend {point.name}.")
