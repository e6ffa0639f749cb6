"""JSON that every program reads: NaN and infinities, which JSON lacks, are strings, spelled as in JavaScript."""

from __future__ import annotations

import json
import math
from typing import Any

_SPELLINGS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def dumps(data: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """One line, which is much faster to encode than indented text, unless `indent` is given."""
    try:
        return json.dumps(data, indent=indent, separators=separators, allow_nan=False)
    except ValueError:
        return json.dumps(plain(data), indent=indent, separators=separators)


def plain(data: Any) -> Any:
    """The same data with strings for NaN and infinities."""
    if isinstance(data, float):
        return data if math.isfinite(data) else _SPELLINGS[str(data)]
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    return [plain(value) for value in data] if isinstance(data, list | tuple) else data
