"""What training code imports: `tracking.log(loss=0.5, step=10)` keeps a replica's metrics beside its log.

Inside a run every replica finds its own file by itself; outside of one the calls do nothing. Training is never hurt: no
call raises, and what could not be kept is counted and said once. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

from phalanx.spool import Writer

VARIABLE = "PHALANX_METRICS"


class _Track:
    """The metrics file of this process; opened anew after a fork, because a file has one writer."""

    def __init__(self) -> None:
        self.owner = 0
        self.writer: Writer | None = None
        self.dropped = 0

    def append(self, data: dict[str, Any]) -> None:
        try:
            self._open().append_json(data)
        except (OSError, ValueError, TypeError) as fault:
            self.drop(str(fault))

    def _open(self) -> Writer:
        if self.writer is None or self.owner != os.getpid():
            self.owner = os.getpid()
            self.writer = Writer(os.environ[VARIABLE])
        return self.writer

    def drop(self, why: str) -> None:
        self.dropped += 1
        if self.dropped == 1:
            warnings.warn(f"phalanx: a metric could not be kept: {why}", RuntimeWarning, stacklevel=4)


_TRACK = _Track()


def log(step: int | None = None, **metrics: Any) -> None:
    """Keep the values of some metrics, at a step of the training."""
    if VARIABLE not in os.environ or not metrics:
        return
    values = {}
    for name, value in metrics.items():
        try:
            values[name] = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError) as fault:
            _TRACK.drop(f"{name}: {fault}")
    if values:
        _TRACK.append({"at": round(time.time(), 3), "step": step, "metrics": values})
