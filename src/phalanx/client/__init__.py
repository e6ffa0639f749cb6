"""Client of a Phalanx server, for Python (`phalanx.Client()`) and the command line.

Names are imported on first use: every call of the command line reads the settings, but few need the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.client.transport import NotFound, RequestRefused, ServerUnreachable

__all__ = ["Client", "NotFound", "RequestRefused", "ServerUnreachable"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from phalanx.client.client import Client

        return Client
    if name in __all__:
        from phalanx.client import transport

        return getattr(transport, name)
    raise AttributeError(f"module 'phalanx.client' has no attribute {name!r}")
