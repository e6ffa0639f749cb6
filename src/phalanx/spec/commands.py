"""`run.cmd` as one line for bash, folded as Polyaxon folds it."""

from __future__ import annotations

import re

_CONTINUATION = re.compile(r"\\[ \t]*\r?\n")
_STRAY = re.compile(r"(?:(?<=\s)|\A)\\(?=\s|\Z)")


def fold(text: str) -> str:
    """White space becomes single spaces; backslashes that only continued a line go."""
    return " ".join(_STRAY.sub(" ", _CONTINUATION.sub(" ", text)).split())


def has_several_lines(text: str) -> bool:
    """Several lines that no backslash joins: perhaps meant as several commands."""
    return len([line for line in _CONTINUATION.sub(" ", text).splitlines() if line.strip()]) > 1


def join(commands: tuple[str, ...]) -> str:
    return " && ".join(folded for folded in map(fold, commands) if folded)
