"""Joins `run.cmd` into one line for bash, as Polyaxon does."""

from __future__ import annotations

import re

_CONTINUATION = re.compile(r"\\[ \t]*\r?\n")
_TRAILING = re.compile(r"\\+(?=\s|\Z)")


def fold(text: str) -> str:
    """Collapse white space and drop a backslash at the end of a word, as Polyaxon does: YAML has already joined the
    continued line, so `--a=1\\ --b=2` would reach bash as one argument.
    """
    return " ".join(_TRAILING.sub(" ", text).split())


def has_several_lines(text: str) -> bool:
    """Whether there are several lines that no backslash joins: possibly meant as several commands."""
    return len([line for line in _CONTINUATION.sub(" ", text).splitlines() if line.strip()]) > 1


def join(commands: tuple[str, ...]) -> str:
    return " && ".join(folded for folded in map(fold, commands) if folded)
