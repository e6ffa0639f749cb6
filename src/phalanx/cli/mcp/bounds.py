"""Bounds on what a tool returns: an assistant reads all of it. Long lists and texts are cut, and the cuts listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx import strict_json

MOST_CHARACTERS = 40_000  # of the JSON of one result: about 10,000 tokens
RECORD = 60  # a map with more entries is data with any keys: entries are left out instead of shortened
LEFT_OUT = "left_out"


def bounded(document: Mapping[str, Any], most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """The document with long lists and texts cut until its JSON fits. `left_out` says what was cut, by its path."""
    found = strict_json.plain(dict(document))
    cuts: dict[str, str] = {}
    # each pass leaves a little more than its budget: brackets, numbers and what cannot be cut
    for budget in (most, most * 3 // 4, most // 2, most // 4):
        if _size(found) + _size(cuts) <= most:
            break
        cuts = {}
        found = _shortened(strict_json.plain(dict(document)), budget, "", cuts)
    return {**found, LEFT_OUT: cuts} if cuts else dict(found)


def _size(value: Any) -> int:
    return len(strict_json.dumps(value))


def _shortened(value: Any, budget: int, path: str, cuts: dict[str, str]) -> Any:
    if _size(value) <= budget:
        return value
    if isinstance(value, str):
        return _short_text(value, budget, path, cuts)
    if isinstance(value, Sequence):
        return _short_list(value, budget, path, cuts)
    if isinstance(value, Mapping):
        return _short_map(value, budget, path, cuts)
    return value


def _short_text(text: str, budget: int, path: str, cuts: dict[str, str]) -> str:
    kept = text[: max(20, min(budget, len(text)) * budget // _size(text))]
    cuts[path] = f"the first {len(kept):,} of {len(text):,} characters"
    return f"{kept}…"


def _short_list(items: Sequence[Any], budget: int, path: str, cuts: dict[str, str]) -> list[Any]:
    kept: list[Any] = []
    left = budget
    for number, item in enumerate(items):
        short = _shortened(item, max(budget // 4, 200), f"{path}[{number}]", cuts)
        left -= _size(short) + 2
        if left < 0 and kept:
            break
        kept.append(short)
    if len(kept) < len(items):
        cuts[path] = f"the first {len(kept):,} of {len(items):,}"
    return kept


def _short_map(values: Mapping[str, Any], budget: int, path: str, cuts: dict[str, str]) -> dict[str, Any]:
    """Small entries stay whole; the large ones share what is left."""
    if len(values) > RECORD:
        return dict(_short_list(list(values.items()), budget, path, cuts))
    short: dict[str, Any] = {}
    left = budget
    sizes = {key: _size(value) for key, value in values.items()}
    for number, key in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        share = max(20, left // (len(sizes) - number))
        short[key] = _shortened(values[key], share, f"{path}.{key}" if path else key, cuts)
        left -= _size(short[key]) + len(key) + 6
    return {key: short[key] for key in values}
