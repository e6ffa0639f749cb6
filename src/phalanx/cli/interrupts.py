"""Signals while a run is submitted and attended: a Ctrl-C stops the run, a closed terminal only us."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

HELD = (signal.SIGINT, signal.SIGTERM)
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def defer_signals() -> None:
    """From before a run is submitted until someone attends it: a Ctrl-C in between waits, and then stops the run."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def restore_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def stop_on_interrupt(stop: Callable[[str], None]) -> list[int]:
    """Ctrl-C and TERM call `stop` with a reason. A closed terminal does not: the list it answers is filled, and we
    leave."""
    hung_up: list[int] = []

    def called(number: int, _: Any) -> None:
        stop(WORDS[signal.Signals(number)])

    signal.signal(signal.SIGINT, called)
    signal.signal(signal.SIGTERM, called)
    signal.signal(signal.SIGHUP, lambda number, _: hung_up.append(number))
    restore_signals()
    return hung_up
