"""Preflight: check that a run's engine accepts jobs from this machine now.

It runs before anything of a run is written, built or fetched: a run that can never start must not wait in a queue.
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
    """Check the engine of a new run. `options`: the cluster, as named on the command line. Raises CallError."""
    if backend not in LOCAL_BACKENDS:
        found = backends.find(backend)
        ask(found, found.target(home, options=options), environment)


def require_engine_of(home: Home, run: Run, environment: Mapping[str, str]) -> None:
    """Check the engine for another attempt of a run, or another run of the same file. Raises CallError."""
    if run.backend not in LOCAL_BACKENDS:
        found = backends.find(run.backend)
        ask(found, found.target_of_run(home.path, home.run(run.id).path), environment)


def ask(backend: Backend, place: Any, environment: Mapping[str, str]) -> None:
    """Raises CallError if jobs cannot be submitted to this target of a backend now."""
    with Connections() as connections:
        engine = backend.engine(place, connections)
        if engine is not None:
            engine.preflight(environment)
