"""Phalanx: one declarative file, any cluster."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from phalanx.reading import Reading


def open(home: str | os.PathLike[str] | None = None) -> Reading:  # noqa: A001 - `phalanx.open()` reads as it does
    """The runs of a home (PHALANX_HOME, or ~/.phalanx, unless told), and what they tracked."""
    from phalanx.reading import open_home

    return open_home(home)
