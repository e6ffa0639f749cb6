"""A screen that is redrawn until the user quits, for `top` and `ps --watch`."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

REDRAW_S = 1.0
KEY_S = 0.05  # how long to wait for a key
_ENTER = "\x1b[?1049h\x1b[?25l"  # alternate screen, hidden cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_END_OF_LINE = "\x1b[K"
_END_OF_SCREEN = "\x1b[J"


def is_terminal() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def watch(lines: Callable[[], Sequence[str]], turn: Callable[[], object], redraw_s: float) -> None:
    """Redraw until the user presses q or a signal comes. `turn` is called between redraws."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda caught, _: received.append(caught))
    with _screen():
        drawn = float("-inf")
        while not received:
            turn()
            if time.monotonic() - drawn >= redraw_s:
                found = lines()
                drawn = time.monotonic()
                _draw(found)
            if _key(KEY_S) in ("q", "Q"):
                break


@contextmanager
def _screen() -> Iterator[None]:
    """Switch to the alternate screen and single-key input; always restore the terminal afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        click.echo(_ENTER, nl=False)
        yield
    finally:
        click.echo(_LEAVE, nl=False)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _draw(lines: Sequence[str]) -> None:
    """Draw over the previous frame, which avoids flicker; cut to the size of the terminal."""
    width, height = shutil.get_terminal_size()
    shown = list(lines[:height])
    if len(lines) > height:
        shown[-1] = f"… {len(lines) - height + 1} more lines"
    body = "\r\n".join(line[: width - 1] + _END_OF_LINE for line in shown)
    click.echo(_HOME + body + _END_OF_SCREEN, nl=False)


def _key(patience_s: float) -> str:
    if not select.select([sys.stdin], [], [], patience_s)[0]:
        return ""
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"  # the terminal is gone
