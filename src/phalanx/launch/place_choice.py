"""Which place the runs of a call are in: the home of this machine, or a server, chosen as the command line chooses.

Connections belong to a thread: `PlaceChoice.open()` returns that of the calling one.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.launch.places import Place

_open = threading.local()


@dataclass(frozen=True, slots=True)
class PlaceChoice:
    """A home, or a server and its token."""

    home: Path | None
    url: str = ""
    token: str = field(default="", repr=False)

    @property
    def is_home(self) -> bool:
        return self.home is not None

    def open(self) -> Place:
        """The connection of this thread. Raises CallError, SystemFault."""
        known: dict[tuple[int, PlaceChoice], Place] = _open.__dict__.setdefault("places", {})
        mine = os.getpid(), self  # a fork must not use the connections of its parent
        if mine not in known:
            known[mine] = self._connect()
        return known[mine]

    def _connect(self) -> Place:
        if self.home is not None:
            from phalanx.launch.home_place import HomePlace

            return HomePlace(self.home)
        from phalanx.launch.server_place import ServerPlace

        return ServerPlace(self.url, self.token)

    def __str__(self) -> str:
        return self.url or str(self.home)


def choose_place() -> PlaceChoice:
    """PHALANX_SERVER, PHALANX_HOME, `phalanx login` or ~/.phalanx, in the order of the command line. Raises
    CallError."""
    from phalanx.client.config import choose_server
    from phalanx.home.home import default_home

    found = choose_server(os.environ)
    return PlaceChoice(default_home()) if found is None else PlaceChoice(None, found.url, found.token)
