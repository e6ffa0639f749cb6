"""Opens the local home of a verb."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.home.home import Home
    from phalanx.store import Store


def open_home() -> tuple[Home, Store]:
    """PHALANX_HOME, or ~/.phalanx; the store is PHALANX_DATABASE, or SQLite in the home. Raises CallError."""
    from phalanx.home.home import Home, default_home
    from phalanx.store import Store

    home = Home(default_home())
    return home, Store.open(home.path, os.environ.get("PHALANX_DATABASE"))
