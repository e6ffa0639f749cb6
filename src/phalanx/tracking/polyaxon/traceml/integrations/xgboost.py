"""`Callback` (usually imported as `PolyaxonCallback`) is `phalanx.tracking.callbacks.PhalanxXGBoost`."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("Callback", "PolyaxonCallback", "PolyaxonLogger"):
        raise AttributeError(name)
    from phalanx.tracking.callbacks import PhalanxXGBoost

    return PhalanxXGBoost
