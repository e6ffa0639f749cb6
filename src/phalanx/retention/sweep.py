"""Applies the retention of a home, for servers whose config.yml asks for it: in a process of its own, one at a time.

<home>/gc.json    when that was done last, and what came of it
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError, SpecErrors, SystemFault
from phalanx.home.background import start_module
from phalanx.home.home import Home
from phalanx.locks import locked
from phalanx.retention.cleanup import Retention
from phalanx.settings.home_settings import read_home_settings
from phalanx.store import Store

RESULT = "gc.json"
BY = "the server's schedule"


def is_due(home: Path, every_s: float, now: float) -> bool:
    last = read_json(home / RESULT)
    return not isinstance(last, dict) or now - float(last.get("at") or 0.0) >= every_s


def start_sweep(home: Home) -> None:
    """A second one is harmless: it finds the lock taken and exits."""
    start_module(home, "phalanx.retention.sweep", "gc.log")


def sweep(home: Home, store: Store) -> int:
    """Apply the retention now. Returns how many bytes were removed. Raises SpecErrors, CallError."""
    with locked(home.path / "gc.lock", wait=False) as is_alone:
        if not is_alone:
            return 0
        retention = Retention(home, store, read_home_settings(home.path))
        retention.recover()
        freed, troubles = retention.apply(retention.plan(), BY)
        result = {"at": time.time(), "freed": freed, "troubles": troubles[:100]}
        write_atomic(home.path / RESULT, json.dumps(result).encode(), sync=False)
        return freed


def main() -> None:
    path = Path(sys.argv[1])
    if not path.is_dir():
        return
    os.nice(10)
    home = Home(path)
    try:
        with Store.open(home.path, os.environ.get("PHALANX_DATABASE")) as store:
            sweep(home, store)
    except (SpecErrors, CallError, SystemFault, OSError) as fault:
        print(f"retention: {fault}", file=sys.stderr, flush=True)
        write_atomic(path / RESULT, json.dumps({"at": time.time(), "freed": 0, "troubles": [str(fault)]}).encode())


if __name__ == "__main__":
    main()
