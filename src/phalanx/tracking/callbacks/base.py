"""What all callbacks have in common."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from phalanx import tracking
from phalanx.tracking.recorder import warn
from phalanx.tracking.values import guarded, named_fault


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever goes wrong in a callback is said once, and stays there."""
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
            warn(f"something could not be kept: {text}; the training goes on")

    return safe


class CallbackRun:
    """Holds the run that was given, or finds the run of this process when it is needed."""

    _given: Any = None

    def __init__(self, run: Any = None) -> None:
        super().__init__()
        self._given = run

    @property
    def run(self) -> Any:
        return tracking.start() if self._given is None else self._given

    def __getstate__(self) -> dict[str, Any]:
        """A run is of one process: its copy in another one finds its own."""
        return {**self.__dict__, "_given": None}


def set_framework(run: Any, framework: str) -> None:
    """The file of a run says it better; a run that has none is told."""
    if not run.is_managed:
        run.describe(framework=framework)


@contextmanager
def draft_folder() -> Iterator[str]:
    """Where a library saves a model for the run to copy."""
    with tempfile.TemporaryDirectory(prefix="phalanx-") as folder:
        yield folder


def as_written(value: Any) -> Any:
    """A number that a library holds in single precision, as somebody wrote it: 0.1 instead of 0.10000000149."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def existing(*paths: Any) -> str | None:
    """The first of some paths that is there."""
    return next((str(path) for path in paths if path and os.path.exists(path)), None)
