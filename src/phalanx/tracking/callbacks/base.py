"""The common base of all callbacks."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from phalanx import tracking
from phalanx.tracking.notices import warn
from phalanx.tracking.values import guarded, named_fault


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Catch errors of a callback and report each kind once."""
    said: set[str] = set()

    @functools.wraps(method)
    def safe(*args: Any, **named: Any) -> Any:
        with guarded(report):
            return method(*args, **named)
        return None

    def report(fault: BaseException) -> None:
        text = f"{method.__qualname__}: {named_fault(fault)}"
        if text not in said:
            said.add(text)
            warn(f"something could not be recorded: {text}; training continues")

    return safe


class CallbackRun:
    """Holds the given run, or finds the run of this process when needed."""

    _given: Any = None

    def __init__(self, run: Any = None) -> None:
        super().__init__()
        self._given = run

    @property
    def run(self) -> Any:
        return tracking.start() if self._given is None else self._given

    def __getstate__(self) -> dict[str, Any]:
        """A run belongs to one process: a copy in another process finds its own."""
        return {**self.__dict__, "_given": None}


def set_framework(run: Any, framework: str) -> None:
    """Set the framework of a run whose file does not set it."""
    if not run.is_managed:
        run.describe(framework=framework)


@contextmanager
def draft_folder() -> Iterator[str]:
    """A temporary folder where a library saves a model for the run to copy."""
    with tempfile.TemporaryDirectory(prefix="phalanx-") as folder:
        yield folder


def as_written(value: Any) -> Any:
    """A single-precision number of a library as the user wrote it: 0.1 instead of 0.10000000149."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def existing(*paths: Any) -> str | None:
    """The first path that exists."""
    return next((str(path) for path in paths if path and os.path.exists(path)), None)
