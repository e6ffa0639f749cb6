"""Runs that are over, removed for good: rows, folders, and what nobody shares with them any more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from phalanx.artifacts.objects import garbage
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.registry.registry import Registry
from phalanx.store import Run, Store


def require_finished(runs: Sequence[Run]) -> None:
    """Raises CallError."""
    alive = [run.id for run in runs if not run.is_done]
    if alive:
        raise CallError(f"not over yet: {', '.join(alive)}; stop them first with `phalanx stop`")


def remove(home: Home, store: Store, runs: Sequence[Run]) -> None:
    """Raises CallError when one is not over: then nothing is removed."""
    require_finished(runs)
    for run in runs:
        folder = home.run(run.id).path
        grave = folder.with_name(f".removed-{run.id}")
        if folder.exists():
            folder.rename(grave)  # gone in one step, so that nobody adopts half of it
        store.delete(run.id)
        shutil.rmtree(grave, ignore_errors=True)
    garbage(home.path)
    Registry(home, store).tidy()
