"""Commands for bash: `run.cmd` joined into one line, as Polyaxon does, and words quoted."""

from __future__ import annotations

import shlex

from phalanx.deferred_patterns import deferred_pattern

_CONTINUATION = deferred_pattern(r"\\[ \t]*\r?\n")
_TRAILING = deferred_pattern(r"\\+(?=\s|\Z)")


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


_VARIABLE = deferred_pattern(r"(\$\{(?:PHALANX_[A-Z_]+|PWD|OLDPWD)\})")
_UNFOLDABLE = deferred_pattern(r"[^\S ]|\s\s|^\s|\s\Z|\\(?=\s|\Z)")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
_LOST_BLANK = deferred_pattern(r"(?<=\s) |^ | \Z")


def quote(text: str) -> str:
    """A text as one word of bash, which `fold` leaves as it is. `${PHALANX_OUTPUTS}` and the other variables of a run
    keep their meaning. An empty text is no word."""
    parts = _VARIABLE.split(text)
    parts[1::2] = [f'"{name}"' for name in parts[1::2]]
    parts[::2] = [_quoted(part) if part else "" for part in parts[::2]]
    return "".join(parts)


def _quoted(text: str) -> str:
    if _UNFOLDABLE.search(text) is None:
        return shlex.quote(text)
    escaped = _LOST_BLANK.sub("\0", text)
    return "$'" + "".join(map(_escaped, escaped)) + "'"


def _escaped(character: str) -> str:
    if character == "\0":
        return "\\x20"
    if character in _ESCAPES or character == " " or not character.isspace():
        return _ESCAPES.get(character, character)
    return "".join(f"\\x{byte:02x}" for byte in character.encode())
