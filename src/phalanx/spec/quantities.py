"""Parses amounts: `2`, `"500m"`, `"2Gi"`, `"90m"`."""

from __future__ import annotations

import math

from phalanx.deferred_patterns import deferred_pattern

_QUANTITY = deferred_pattern(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([a-zA-Z]*)\s*\Z")
_BYTES = {"": None, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", start=1)
}
_MIB = 1024.0**2
LONGEST = 64  # characters of an amount
_DURATION = deferred_pattern(r"\s*(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+(?:\.\d+)?)s?)?\s*\Z")


def is_finite(number: float) -> bool:
    """False also for whole numbers that are too large for a float: a file must not contain them."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _split(text: str) -> tuple[float, str] | None:
    match = _QUANTITY.match(text) if len(text) <= LONGEST else None
    if match is None or not is_finite(float(match[1])):
        return None
    return float(match[1]), match[2]


def count(text: str) -> float | None:
    """Devices: a bare number."""
    parts = _split(text)
    return parts[0] if parts and not parts[1] else None


def cpus(text: str) -> float | None:
    """CPUs: a bare number, or thousandths with `m`."""
    parts = _split(text)
    if parts is None or parts[1] not in ("", "m"):
        return None
    return parts[0] / 1000 if parts[1] == "m" else parts[0]


def memory_mib(text: str) -> float | None:
    """Memory in MiB: a bare number is MiB; `2Gi`, `512Mi`, `1G` have a unit (a final `B` is allowed)."""
    parts = _split(text)
    if parts is None:
        return None
    unit = parts[1].removesuffix("B") if len(parts[1]) > 1 else parts[1]
    if unit not in _BYTES:
        return None
    scale = _BYTES[unit]
    return parts[0] if scale is None else parts[0] * scale / _MIB


def seconds(text: str) -> float | None:
    """A duration: seconds, or any part of `1d12h30m15s`."""
    match = _DURATION.match(text) if len(text) <= LONGEST else None
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, rest = (float(part) if part else 0.0 for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def tidy(number: float) -> int | float:
    """2.0 as 2, for messages and JSON."""
    return int(number) if math.isfinite(number) and number == int(number) else number
