"""Finds the first error in a log."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from phalanx.logs.lines import TRACEBACK, LogLine

CONTEXT = 6  # lines shown before an error
AFTER = 10  # and after it
LONGEST_TRACEBACK = 200
_ERROR = re.compile(
    r"^\s*(\[[^\]]*\]:?\s*)?([\w.]+\.)?\w*(Error|Exception|Interrupt)\b(:|\s*$)"
    r"|\b(ERROR|FATAL|CRITICAL|PANIC)\b"
    r"|^([^\s:]+:\s*)*([Ff]atal|[Pp]anic|[Ee]rror)\b.*:"
    r"|command not found|No such file or directory|Permission denied|cannot start"
    r"|Segmentation fault|core dumped|terminate called|Assertion .* failed|[Oo]ut of memory|^Killed\b"
)


class Excerpt(NamedTuple):
    """A few lines of a log. `error`: index of the line with the error; None if there is none, and the lines are the
    last ones."""

    lines: tuple[LogLine, ...]
    error: int | None


def first_error(lines: Iterable[LogLine]) -> Excerpt:
    """The first traceback of a log, else the first line with an error, else the last lines."""
    before: deque[LogLine] = deque(maxlen=CONTEXT)
    spoken: list[LogLine] = []
    index: int | None = None
    rest = iter(lines)
    for line in rest:
        if TRACEBACK in line.text:
            return Excerpt((*before, *_traceback(line, rest)), len(before))
        if index is None and is_error(line.text):
            spoken, index = [*before, line], len(before)
        elif index is not None and len(spoken) <= index + AFTER:
            spoken.append(line)
        before.append(line)
    return Excerpt(tuple(spoken) if index is not None else tuple(before), index)


def is_error(text: str) -> bool:
    return TRACEBACK in text or _ERROR.search(text) is not None


def _traceback(first: LogLine, rest: Iterator[LogLine]) -> Iterator[LogLine]:
    """A whole traceback, with chained ones, and a few more lines."""
    prefix = first.text[: first.text.index(TRACEBACK)]  # such as the `[rank0]: ` of torchrun
    left: int | None = None  # None while inside a traceback
    yield first
    for line in islice(rest, LONGEST_TRACEBACK):
        text = line.text.removeprefix(prefix)
        if TRACEBACK in text:
            left = None
        elif left is None and text.strip() and not text[0].isspace():
            left = AFTER
        elif left is not None:
            if left == 0:
                return
            left -= 1
        yield line
