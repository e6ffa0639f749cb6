"""Preflight: whether a run's engine takes jobs from this machine now.

It is asked before anything of a run is written, built or fetched: a run that can never start must not wait in a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx import backends
from phalanx.backends.contract import LOCAL_BACKENDS, NO_OPTIONS, Backend, Connections
from phalanx.home.home import Home
from phalanx.store import Run


def require_engine(
    home: Path, backend: str, environment: Mapping[str, str], options: Mapping[str, str | None] = NO_OPTIONS
) -> None:
    """For a new run. `options`: which cluster, as the command line names it. Raises CallError."""
    if backend not in LOCAL_BACKENDS:
        found = backends.find(backend)
        ask(found, found.target(home, options=options), environment)


def require_engine_of(home: Home, run: Run, environment: Mapping[str, str]) -> None:
    """For another attempt of a run, or another run of the same file. Raises CallError."""
    if run.backend not in LOCAL_BACKENDS:
        found = backends.find(run.backend)
        ask(found, found.target_of_run(home.path, home.run(run.id).path), environment)


def ask(backend: Backend, place: Any, environment: Mapping[str, str]) -> None:
    """Whether jobs can be submitted to a place of a backend now. Raises CallError when they cannot."""
    with Connections() as connections:
        engine = backend.engine(place, connections)
        if engine is not None:
            engine.preflight(environment)
