"""Warnings about what is recorded otherwise than it was given. Standard library only, Python 3.8+."""

from __future__ import annotations

import sys

from phalanx.naming import without_control_characters

MOST_NOTED = 1000  # different warnings of one process
_noted: set[tuple[str, str]] = set()


def warn(text: str) -> None:
    """Print a warning to stderr, not with `warnings`: those can be turned into errors."""
    try:
        sys.stderr.write(f"phalanx: {text}\n")
    except Exception:  # noqa: BLE001, S110 - stderr may be closed, or anything that the program put there
        pass


def warn_once(subject: str, what: str, text: str) -> None:
    if (subject, what) not in _noted and len(_noted) < MOST_NOTED:
        _noted.add((subject, what))
        warn(text)


def plain_name(given: str) -> str:
    """A name without line breaks and other control characters. They are noted once."""
    name = without_control_characters(given)
    if name != given:
        text = f"a name must not contain line breaks or other control characters; `{name[:100]}` is recorded"
        warn_once("name", name, text)
    return name
