"""The tracking API for training code: `tracking.log(loss=0.5, step=10)`.

Inside a run every replica finds its files by itself. Outside of a run, the first call creates one in the user's home
(or on a server), so that notebooks and plain scripts are tracked too. Training is never hurt: no call raises, waits
or needs the network; lost values are counted and reported. Standard library only, Python 3.8+.
"""

# ruff: noqa: F405 - the names are those of `functions`, which is imported on first use
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.tracking.functions import *  # noqa: F403

__all__ = [
    "TrackedRun", "alert", "artifact", "artifacts", "audio", "current", "dataset", "describe", "figure", "finish",
    "histogram", "image", "invalid", "labels", "log", "log_image", "model", "on_checkpoint", "params", "points",
    "progress", "start", "table", "tags", "text", "track", "video",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The functions are imported when the first of them is used: every command of Phalanx imports modules of this
    package for their names and paths."""
    if name not in (*__all__, "joined", "nowhere"):  # the last two are for other modules, and pickled runs
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module("phalanx.tracking.functions"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
