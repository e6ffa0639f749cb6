"""Signal handling while a run is submitted and watched: Ctrl-C stops the run, a closed terminal only this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

HELD = (signal.SIGINT, signal.SIGTERM)
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def defer_signals() -> None:
    """Block Ctrl-C and TERM between submitting a run and watching it, so that they stop the run afterwards."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def restore_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def stop_on_interrupt(stop: Callable[[str], None]) -> list[int]:
    """Call `stop` with a reason on Ctrl-C and TERM. A closed terminal only fills the returned list: the caller then
    returns and the run continues."""
    hung_up: list[int] = []

    def called(number: int, _: Any) -> None:
        stop(WORDS[signal.Signals(number)])

    signal.signal(signal.SIGINT, called)
    signal.signal(signal.SIGTERM, called)
    signal.signal(signal.SIGHUP, lambda number, _: hung_up.append(number))
    restore_signals()
    return hung_up
