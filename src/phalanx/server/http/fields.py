"""Checks of request fields: type and size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from phalanx.server.http.responses import RequestError

LONGEST_TEXT = 100_000
MOST_ENTRIES = 10_000


def text(wanted: Mapping[str, Any], name: str, longest: int = LONGEST_TEXT) -> str:
    """Raises RequestError for anything but a string; a missing field is an empty string."""
    found = wanted.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > longest:
        raise RequestError(400, f"`{name}` must be a string of up to {longest:,} characters")
    return found


def string_list(wanted: Mapping[str, Any], name: str) -> list[str]:
    found = wanted.get(name) or []
    if not isinstance(found, list) or len(found) > MOST_ENTRIES or not all(isinstance(word, str) for word in found):
        raise RequestError(400, f"`{name}` must be a list of strings")
    return [word[:500] for word in dict.fromkeys(found)]


def mapping(wanted: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = wanted.get(name) or {}
    if not isinstance(found, dict) or len(found) > MOST_ENTRIES:
        raise RequestError(400, f"`{name}` must be an object of up to {MOST_ENTRIES:,} entries")
    return found


def timestamp(wanted: Mapping[str, Any], name: str) -> float | None:
    """Seconds since the epoch, in this or the last century."""
    found = wanted.get(name)
    if found is None:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or not 0 <= found < 4e9:
        raise RequestError(400, f"`{name}` must be a time in seconds since 1970")
    return float(found)


def flag(wanted: Mapping[str, Any], name: str) -> bool:
    found = wanted.get(name)
    if found is not None and not isinstance(found, bool):
        raise RequestError(400, f"`{name}` must be true or false")
    return bool(found)
