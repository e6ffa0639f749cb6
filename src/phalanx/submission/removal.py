"""Permanent removal of finished runs: rows, folders, and artifacts that no other run shares."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from phalanx.artifacts.objects import Objects
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.registry.registry import Registry
from phalanx.store import Run, Store, quoted
from phalanx.store.kinds import WHOLES


def with_parts(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs; before each group its trials, before each pipeline its ops, and before each schedule its pipelines."""
    found: dict[str, Run] = {}
    for run in runs:
        if run.kind in WHOLES and run.id not in found:
            parts = store.runs(f"group:{quoted(run.id)}", limit=None)
            found |= {part.id: part for part in with_parts(store, parts)}
        found[run.id] = run
    return list(found.values())


def require_finished(runs: Sequence[Run]) -> None:
    """Raises CallError if one of the runs is still active."""
    alive = [run.id for run in runs if not run.is_done]
    if alive:
        raise CallError(f"still active: {', '.join(alive)}; stop them first with `phalanx stop`")


def remove(home: Home, store: Store, runs: Sequence[Run]) -> None:
    """Remove runs, groups with their trials and pipelines with their ops. Raises CallError, and removes nothing, if one
    is still active."""
    runs = with_parts(store, runs)
    require_finished(runs)
    for run in runs:
        folder = home.run(run.id).path
        grave = folder.with_name(f".removed-{run.id}")
        if folder.exists():
            folder.rename(grave)  # in one step, so that a scheduler does not adopt half of it
        store.delete(run.id)
        shutil.rmtree(grave, ignore_errors=True)
    Objects(home.path).garbage()
    Registry(home, store).tidy()
