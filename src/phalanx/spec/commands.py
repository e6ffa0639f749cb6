"""`run.cmd` as one line for bash, folded as Polyaxon folds it."""

from __future__ import annotations

import re

_CONTINUATION = re.compile(r"\\[ \t]*\r?\n")
_TRAILING = re.compile(r"\\+(?=\s|\Z)")


def fold(text: str) -> str:
    """White space becomes single spaces; a backslash at the end of a word goes, as in Polyaxon: YAML has folded the
    line that it continued, so `--a=1\\ --b=2` would reach bash as one argument.
    """
    return " ".join(_TRAILING.sub(" ", text).split())


def has_several_lines(text: str) -> bool:
    """Several lines that no backslash joins: perhaps meant as several commands."""
    return len([line for line in _CONTINUATION.sub(" ", text).splitlines() if line.strip()]) > 1


def join(commands: tuple[str, ...]) -> str:
    return " && ".join(folded for folded in map(fold, commands) if folded)
