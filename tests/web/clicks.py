"""Counts what a user presses, in the browser itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.web.browsing import Window

COUNTER = """
addEventListener('pointerdown', (event) => {
  if (event.isTrusted) sessionStorage.setItem('clicks', Number(sessionStorage.getItem('clicks') ?? 0) + 1);
}, true);
"""
READ = "Number(sessionStorage.getItem('clicks') ?? 0)"


@contextmanager
def at_most(window: Window, most: int) -> Iterator[None]:
    """Fails if more than so many clicks were made inside. Presses count, also those that open another page."""
    page = window.page
    page.add_init_script(COUNTER)
    page.evaluate(COUNTER)
    before = page.evaluate(READ)
    yield
    made = page.evaluate(READ) - before
    assert made == most, f"{made} clicks instead of {most}"
