"""Phalanx: one declarative file, any cluster."""

from __future__ import annotations

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from phalanx.client import Client as Client
    from phalanx.client.local import HomeReader

# Imported on first use: training code that imports phalanx must not wait for what it does not need.
_LATER = {
    "Client": "phalanx.client.Client",
    "Executor": "phalanx.launch.executor.RunExecutor",
    "RunFailed": "phalanx.errors.RunFailed",
    "attach": "phalanx.launch.functions.attach",
    "load_ipython_extension": "phalanx.launch.magic.load_ipython_extension",
    "map": "phalanx.launch.functions.map",
    "run": "phalanx.launch.functions.run",
    "submit": "phalanx.launch.functions.submit",
}


def open(home: str | os.PathLike[str] | None = None) -> HomeReader:  # noqa: A001 - used as `phalanx.open()`
    """Open a home to read its runs and their tracked data. Default: PHALANX_HOME, else ~/.phalanx."""
    from phalanx.client.local import open_home

    return open_home(home)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _LATER[name].rpartition(".")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
