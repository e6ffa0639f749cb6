"""python -m phalanx.scheduler HOME: the background scheduler."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from phalanx.home.home import Home
from phalanx.scheduler.runner import run_until_idle
from phalanx.store import Store


def main() -> int:
    home = Home(Path(sys.argv[1]))
    with Store.open(home.path, os.environ.get("PHALANX_DATABASE")) as store:
        run_until_idle(home, store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
