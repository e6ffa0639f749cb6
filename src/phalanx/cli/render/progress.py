"""Sizes, counts, and the progress of transfers and checks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from phalanx.cli.render.output import printable


def bytes_text(count: int) -> str:
    """A number of bytes with a binary unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count_text(count: int, what: str = "file") -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class ProgressMeter:
    """Shows progress on standard error, if that is a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet or sys.stderr is None or not sys.stderr.isatty()
        self.shown_at = 0.0
        self.started_at = time.monotonic()

    def __enter__(self) -> ProgressMeter:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown_at:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, what: str, done: int, total: int) -> None:
        """Bytes of a transfer."""
        self._show(lambda: f"{bytes_text(done)} of {bytes_text(total)}  {printable(what)}")

    def show_count(self, what: str, done: int) -> None:
        self._show(lambda: f"{what} {done:,}")

    def _show(self, words: Callable[[], str]) -> None:
        now = time.monotonic()
        if self.quiet or now - self.started_at < 0.5 or now - self.shown_at < 0.1:
            return
        self.shown_at = now
        text = words()
        click.echo(f"\r\x1b[K{text[:100]}", nl=False, err=True)
