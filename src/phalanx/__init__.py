"""Phalanx: one declarative file, any cluster."""

from __future__ import annotations

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from phalanx.client import Client as Client
    from phalanx.client.local import HomeReader


def open(home: str | os.PathLike[str] | None = None) -> HomeReader:  # noqa: A001 - used as `phalanx.open()`
    """Open a home to read its runs and their tracked data. Default: PHALANX_HOME, else ~/.phalanx."""
    from phalanx.client.local import open_home

    return open_home(home)


def __getattr__(name: str) -> Any:
    """Import `phalanx.Client` on first use, because training code that imports phalanx must not wait for httpx."""
    if name != "Client":
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    from phalanx.client import Client

    return Client


def __dir__() -> list[str]:
    return sorted((*globals(), "Client"))
