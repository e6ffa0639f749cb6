"""Being told to save, some minutes before the time of a job is over. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from phalanx.tracking.recorder import warn
from phalanx.tracking.values import guarded, named_fault

SIGNAL = "PHALANX_CHECKPOINT_SIGNAL"
LEFT = 85  # the exit code that says: saved, go on in the next segment

# Of this process, as handlers of signals are.
_savers: list[tuple[Callable[[], Any], bool]] = []
_before: dict[int, Any] = {}  # the handlers that ours took the place of, by signal


def on_checkpoint(save: Callable[[], Any], *, leave: bool = False) -> bool:
    """Call `save()` when the time of this job is nearly over: in the main thread, between two instructions of Python.
    Training goes on afterwards, until the time is over; with `leave` the process ends at once, and the next segment of
    the run begins. May be called for several. Answers whether it will be called: outside of a run, in another thread
    and where there are no signals it will not. Never raises."""
    try:
        number = getattr(signal, f"SIG{os.environ.get(SIGNAL) or 'USR1'}")
        if number not in _before:
            _before[number] = signal.signal(number, _save_all)
    except (AttributeError, ValueError, OSError) as fault:
        warn(f"on_checkpoint is only possible in the main thread: {fault}")
        return False
    _savers.append((save, leave))
    return bool(os.environ.get("PHALANX_RUN_ID"))


def _save_all(number: int, frame: Any) -> None:
    """What one of them raises must not end the training, nor keep the others from saving."""
    for save, _ in _savers:
        with guarded(lambda fault: warn(f"a checkpoint could not be saved: {named_fault(fault)}")):
            save()
    before = _before.get(number)
    if callable(before):
        before(number, frame)
    if any(leave for _, leave in _savers):
        sys.exit(LEFT)
