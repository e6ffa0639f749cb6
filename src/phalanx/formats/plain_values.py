"""Converts untrusted values for JSON and databases: bounded, with valid text only."""

from __future__ import annotations

from typing import Any

from phalanx.naming import without_control_characters

LONGEST_NAME = 500
LONGEST_TEXT = 1 << 20  # characters
DEEPEST = 20
MOST_NODES = 300_000  # of one value
_LARGEST = 1 << 63


def text(given: str, longest: int = LONGEST_TEXT) -> str:
    """Text without lone surrogates, which cannot be encoded, and NUL, which databases reject."""
    cleaned = given.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return cleaned if len(cleaned) <= longest else cleaned[: longest - 1] + "…"


def name(given: str) -> str:
    return text(without_control_characters(given), LONGEST_NAME)


def value(given: Any) -> Any:
    """The closest JSON value. YAML aliases may expand endlessly: the excess is dropped."""
    return _value(given, 0, [MOST_NODES])


def _value(given: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if given is None or isinstance(given, bool | float):
        return given
    if isinstance(given, int):
        return given if abs(given) < _LARGEST else _real(given)
    if isinstance(given, str):
        return text(given)
    if isinstance(given, dict | list | tuple):
        if depth >= DEEPEST or left[0] < 0:
            return "…"
        if isinstance(given, dict):
            return {text(str(key)): _value(inner, depth + 1, left) for key, inner in given.items()}
        return [_value(inner, depth + 1, left) for inner in given]
    return text(str(given))


def _real(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
