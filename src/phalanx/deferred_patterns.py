"""Regular expressions that are compiled on first use.

Compiling the patterns of all modules that a command imports takes longer than the start of Python, and most commands
use few of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast


class _DeferredPattern:
    """Has the methods and attributes of the compiled pattern."""

    def __init__(self, pattern: Any, flags: Any = 0) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = vars(self)[name] = getattr(re.compile(self._pattern, self._flags), name)
        return found


def deferred_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """`re.compile(pattern, flags)`, on first use. Call its methods; functions of `re` do not take it."""
    return cast("re.Pattern[str]", _DeferredPattern(pattern, flags))


@contextmanager
def patterns_deferred() -> Iterator[None]:
    """Patterns that the modules imported inside compile at their top are compiled on first use."""
    stand_in = ModuleType("re")
    vars(stand_in).update(vars(re) | {"compile": _DeferredPattern})
    sys.modules["re"] = stand_in
    try:
        yield
    finally:
        sys.modules["re"] = re
