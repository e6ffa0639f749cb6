"""Scalars: what an unquoted one means, and values that keep the characters they were written with.

`commit: 0123456` is a number in YAML, but means seven characters. A number used as a number (a count, a point of a
search, JSON) has its value; used as text (a command, a variable, a label) it has its characters. Ordinary spellings
need no record: the characters of `3`, `0.1` and `true` follow from the value.
"""

from __future__ import annotations

import math
import re
from typing import Any

Scalar = str | int | float | bool | None

MOST_DIGITS = 1000

_NULL = frozenset(["", "~", "null", "Null", "NULL"])
_TRUE = frozenset(["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"])
_FALSE = frozenset(["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"])
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)\Z")
# More than YAML 1.1, where an exponent needs a dot before it and a sign: `1e-3`, `1.5e3` and, if short, `1e5` are
# numbers. A longer number such as `1234e56` is rather the abbreviated hash of a commit.
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+][0-9]+|[0-9]{1,3}[eE][0-9]{1,2})\Z"
)
_SPECIAL = re.compile(r"(?P<sign>[-+]?)\.(?P<name>inf|Inf|INF|nan|NaN|NAN)\Z")
_VALUE_WORDS = frozenset(["true", "false", "null", ""])  # templates write these as Polyaxon does: `True`, `None`


class WrittenScalar:
    """A value that keeps its characters: `str` of it are the characters, everything else is that of the value."""

    plain: Scalar
    text: str

    def __str__(self) -> str:
        return self.text

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.plain, self.text)


class WrittenInt(WrittenScalar, int):
    """`0123456`, `0x1F`, `1_000`."""

    def __new__(cls, value: int, text: str) -> WrittenInt:
        made = super().__new__(cls, value)
        made.plain, made.text = value, text
        return made


class WrittenFloat(WrittenScalar, float):
    """`1e-3`, `0.10`."""

    def __new__(cls, value: float, text: str) -> WrittenFloat:
        made = super().__new__(cls, value)
        made.plain, made.text = value, text
        return made


class WrittenBool(WrittenScalar, int):
    """`yes`, `off`. Python's own type allows no subclass."""

    def __new__(cls, value: bool, text: str) -> WrittenBool:
        made = super().__new__(cls, value)
        made.plain, made.text = value, text
        return made

    def __repr__(self) -> str:
        return repr(self.plain)


class WrittenNull(WrittenScalar):
    """`~`."""

    def __init__(self, value: None, text: str) -> None:
        self.plain, self.text = value, text

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, WrittenNull)

    def __hash__(self) -> int:
        return hash(None)

    def __repr__(self) -> str:
        return repr(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return WrittenNull, (None, self.text)


def written(value: Scalar, text: str | None) -> Any:
    """The value with its characters, or alone if they follow from it."""
    if text is None or isinstance(value, str) or text == str(value) or text.lower() in _VALUE_WORDS:
        return value
    if value is None:
        return WrittenNull(value, text)
    if isinstance(value, bool):
        return WrittenBool(value, text)
    if isinstance(value, int):
        return WrittenInt(value, text)
    return WrittenFloat(value, text) if math.isfinite(value) else value


def plain_scalar(value: Any) -> Any:
    """The value without its characters."""
    return value.plain if isinstance(value, WrittenScalar) else value


def scalar_text(value: Any, text: str | None = None) -> str:
    """A scalar where text is expected: its characters, or what they would be in a shell. The word `null` is no text."""
    if value is None:
        return text if text == "~" else ""
    if text is not None:
        return text
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_valid_text(text: str) -> bool:
    """Whether a text can be written to files and passed to programs: without NUL and without half a surrogate pair."""
    return "\x00" not in text and (text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text))


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if not (text[0].isdigit() or text[0] in "+-.") or len(text) > MOST_DIGITS:
        return text
    return _number(text)


def _number(text: str) -> Scalar:
    if _INTEGER.match(text):
        digits = text.replace("_", "")
        body = digits.lstrip("+-")
        try:
            # YAML 1.1: 010 is eight
            return int(digits, 8 if len(body) > 1 and body[0] == "0" and body[1].isdigit() else 0)
        except ValueError:
            return text  # `0x_` and its like
    special = _SPECIAL.match(text)
    if special:
        return float(special["sign"] + special["name"].lower())
    if _FLOAT.match(text) and any(c.isdigit() for c in text):
        number = float(text.replace("_", ""))
        return number if math.isfinite(number) else text  # `1e400`
    return text
