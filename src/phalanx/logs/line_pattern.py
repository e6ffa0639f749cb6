"""What to search for in log lines: a text, or a regular expression that is matched in linear time.

The syntax is RE2's. Python's own `re` backtracks: a short pattern can keep a core busy for hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from phalanx.errors import CallError
from phalanx.extras import needed
from phalanx.logs.lines import plain_text

LONGEST_PATTERN = 500
_MOST_MEMORY = 1 << 20  # bytes of a compiled expression; a larger one is refused
_PLAIN = re.compile(r"[^\\.^$*+?{}\[\]|()]+")

Span = tuple[int, int]
Find = Callable[[bytes, int], "Span | None"]  # (data, start) -> the first match, within one line


class LinePattern(NamedTuple):
    """Finds a text or an expression, ignoring case. `longest` is the length of a match in bytes; None if unknown."""

    find: Find
    longest: int | None

    @classmethod
    def of(cls, text: str, *, is_regex: bool) -> LinePattern:
        """Raises CallError for an invalid expression, and MissingExtra."""
        if len(text) > LONGEST_PATTERN:
            raise CallError(f"a pattern may have at most {LONGEST_PATTERN} characters")
        if is_regex and not _PLAIN.fullmatch(text):
            return cls(_regex_finder(text), None)
        return cls(_text_finder(text), len(text.encode("utf-8", "replace")))

    def matches(self, text: str) -> bool:
        """Whether a line of a log matches as it is shown, without colours."""
        return self.find(plain_text(text).encode("utf-8", "replace"), 0) is not None


def _text_finder(text: str) -> Find:
    """Outside ASCII, upper and lower case differ in several bytes."""
    parts = []
    for sign in text:
        forms = dict.fromkeys(form.encode("utf-8", "replace") for form in (sign, sign.lower(), sign.upper()))
        parts.append(b"(?:%s)" % b"|".join(map(re.escape, forms)))
    if not text.isascii():
        return _spans(re.compile(b"".join(parts)).search)
    wanted, seen, lowered = text.lower().encode(), b"", b""

    def find(data: bytes, start: int) -> Span | None:
        nonlocal seen, lowered
        if data is not seen:  # it is searched again after each match
            seen, lowered = data, data.lower()
        at = lowered.find(wanted, start)
        return None if at == -1 else (at, at + len(wanted))

    return find


def _regex_finder(text: str) -> Find:
    with needed("regex", "a regular expression"):
        import re2
    options = re2.Options()
    options.case_sensitive = False
    options.never_nl = True  # a match stays within its line
    options.one_line = False
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MOST_MEMORY
    try:
        return _spans(re2.compile(f"(?m){text}", options).search)
    except re2.error as fault:
        reason = fault.args[0] if fault.args else ""
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise CallError(f"`{text}` is not a regular expression: {said.replace('(?m)', '')}") from None


def _spans(search: Callable[[bytes, int], re.Match[bytes] | None]) -> Find:
    def find(data: bytes, start: int) -> Span | None:
        match = search(data, start)
        return match.span() if match else None

    return find
