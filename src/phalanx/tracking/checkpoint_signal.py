"""Handles the checkpoint signal, some minutes before the end of a job. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from phalanx.tracking.notices import warn
from phalanx.tracking.values import guarded, named_fault

SIGNAL = "PHALANX_CHECKPOINT_SIGNAL"
LEFT = 85  # exit code: saved, continue in the next segment

# State of this process, like signal handlers.
_savers: list[tuple[Callable[[], Any], bool | Callable[[], bool]]] = []
_before: dict[int, Any] = {}  # the replaced handlers, by signal


def on_checkpoint(save: Callable[[], Any], *, leave: bool | Callable[[], bool] = False) -> bool:
    """Call `save()` when the time of this job is nearly over: in the main thread, between two instructions of Python.
    Training continues afterwards until the time is over; with `leave` the process exits at once and the next segment of
    the run starts; a function as `leave` decides that after all have saved. May be called several times. Returns
    whether `save` will be called: not outside a run, in another thread or without signals. Never raises."""
    try:
        number = getattr(signal, f"SIG{os.environ.get(SIGNAL) or 'USR1'}")
        if number not in _before:
            _before[number] = signal.signal(number, _save_all)
    except (AttributeError, ValueError, OSError) as fault:
        warn(f"on_checkpoint must be called in the main thread: {fault}")
        return False
    _savers.append((save, leave))
    return bool(os.environ.get("PHALANX_RUN_ID"))


def _save_all(number: int, frame: Any) -> None:
    """Call all callbacks. An error in one must not end the training or prevent the others from saving."""
    for save, _ in _savers:
        with guarded(lambda fault: warn(f"a checkpoint could not be saved: {named_fault(fault)}")):
            save()
    before = _before.get(number)
    if callable(before):
        before(number, frame)
    if any(leave() if callable(leave) else leave for _, leave in _savers):
        sys.exit(LEFT)
