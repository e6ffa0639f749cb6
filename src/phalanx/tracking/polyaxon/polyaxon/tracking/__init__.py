"""The tracking of Polyaxon 1.x and 2.x, under its usual name."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("traceml.tracking"), name)
