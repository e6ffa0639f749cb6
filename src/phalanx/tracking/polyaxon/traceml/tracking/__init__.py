"""`tracking.init()`, `tracking.log_metrics(loss=0.5, step=1)`: Polyaxon 1.x's functions, recorded in the run.

They call a `Run`, which code may also make itself. Nothing raises into the training.
"""

from __future__ import annotations

from typing import Any

from .run import METHODS, Run

__all__ = ["TRACKING_RUN", "Run", "get_or_create_run", "init"]
__all__ += list(METHODS)

TRACKING_RUN: Run | None = None


def init(*args: Any, **named: Any) -> Run:
    """The run of this process. Owner and project are those of the run."""
    global TRACKING_RUN  # noqa: PLW0603 - as Polyaxon has it
    TRACKING_RUN = Run(*args, **named)
    return TRACKING_RUN


def get_or_create_run(tracking_run: Run | None = None) -> Run:
    return tracking_run or TRACKING_RUN or init()


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(get_or_create_run(), name)
