"""Stars: the runs that a user has marked for themselves.

<home>/stars/<hash of the user's name>.json    the user and the ids of the runs

They belong to users, so they are not in the folders of runs: who may only view a run can star it. The store is an index
of these files. In a home without a server, the stars are those of its owner.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from phalanx.atomic_files import read_json, write_atomic
from phalanx.errors import CallError, disk_fault
from phalanx.home.home import Home
from phalanx.locks import locked
from phalanx.store import Store

OWNER = "owner"  # of the home: who uses it without a server, and the server's own token
MOST_STARS = 10_000  # of one user


def change_stars(home: Home, store: Store, user: str, run_ids: Sequence[str], *, is_starred: bool) -> None:
    """Add or remove stars. Raises CallError when the user has too many, SystemFault when the disk refuses."""
    import hashlib

    folder = home.path / "stars"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / f"{hashlib.sha256(user.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"
        with locked(folder / "lock"):
            before = _read(file)[1]
            kept = [run_id for run_id in before if run_id not in run_ids]
            after = [*kept, *dict.fromkeys(run_ids)] if is_starred else kept
            if len(after) > MOST_STARS:
                raise CallError(f"`{user}` has {len(before):,} starred runs; {MOST_STARS:,} are allowed")
            if after != before:
                write_atomic(file, json.dumps({"version": 1, "user": user, "runs": after}).encode())
            store.change_stars(user, run_ids, is_starred=is_starred)
    except OSError as fault:
        raise disk_fault(f"stars cannot be kept in {folder}", fault) from None


def index_stars(home: Home, store: Store) -> None:
    """Put the stars of all users into the store, which has none."""
    for file in sorted((home.path / "stars").glob("*.json")):
        user, run_ids = _read(file)
        store.change_stars(user, run_ids, is_starred=True)


def _read(file: Path) -> tuple[str, list[str]]:
    """The user and the runs of a file; empty if it is missing or damaged."""
    found = read_json(file)
    runs = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(runs, list):
        return "", []
    return str(found.get("user", "")), [str(run_id) for run_id in runs]
