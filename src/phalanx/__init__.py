"""Phalanx: one declarative file, any cluster."""

from __future__ import annotations

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from phalanx.client import Client as Client
    from phalanx.client.local import HomeReader


def open(home: str | os.PathLike[str] | None = None) -> HomeReader:  # noqa: A001 - `phalanx.open()` reads as it does
    """The runs of a home (PHALANX_HOME, or ~/.phalanx, unless told), and what they tracked."""
    from phalanx.client.local import open_home

    return open_home(home)


def __getattr__(name: str) -> Any:
    """`phalanx.Client`, for whoever asks for it: training code that imports us must not wait for HTTP."""
    if name != "Client":
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    from phalanx.client import Client

    return Client
