"""Amounts with head-room, rounded up to usual values, and their notation in files and messages."""

from __future__ import annotations

import math

MEMORY_HEADROOM = 1.2
TIME_HEADROOM = 1.25
TIME_HEADROOM_S = 60.0  # seconds, at least: startup may take longer another day
MORE = 1.5  # times the amount that was not enough
GIB = 1024.0

# Up to this many MiB, or seconds, in steps of this size.
_MEMORY_STEPS = ((512, 64), (1024, 128), (2048, 256), (4096, 512), (16 * 1024, 1024), (64 * 1024, 2048))
_LARGE_MEMORY_STEP = 8 * 1024
_TIME_STEPS = ((600, 60), (3600, 300), (6 * 3600, 900), (24 * 3600, 3600))
_LONG_TIME_STEP = 6 * 3600


def _rounded_up(value: float, steps: tuple[tuple[int, int], ...], last: int) -> int:
    step = next((step for top, step in steps if value <= top), last)
    return max(1, math.ceil(value / step)) * step


def memory_for(peak_mib: float) -> int:
    """MiB to request for a maximum use of this much."""
    return _rounded_up(peak_mib * MEMORY_HEADROOM, _MEMORY_STEPS, _LARGE_MEMORY_STEP)


def more_memory(mib: float) -> int:
    """MiB to request after a kill at this much."""
    return _rounded_up(mib * MORE, _MEMORY_STEPS, _LARGE_MEMORY_STEP)


def cores_for(p95: float) -> int:
    """Cores to request for a 95th percentile of this many. A twentieth of a core is the noise of the clock."""
    return max(1, math.ceil(round(p95, 1)))


def time_for(seconds: float) -> int:
    """Seconds to request for a duration of this long."""
    return _rounded_up(max(seconds * TIME_HEADROOM, seconds + TIME_HEADROOM_S), _TIME_STEPS, _LONG_TIME_STEP)


def more_time(seconds: float) -> int:
    """Seconds to request for a run that was not finished after this many."""
    return _rounded_up(seconds * MORE, _TIME_STEPS, _LONG_TIME_STEP)


# notation in files ---------------------------------------------------------------------------------------------------


def memory_text(mib: float) -> str:
    """`640Mi`, `1.5Gi`."""
    return f"{mib / GIB:g}Gi" if mib >= GIB and mib % 256 == 0 else f"{mib:g}Mi"


def time_text(seconds: float) -> str:
    """`20m`, `1h30m`, `1d6h`."""
    parts = []
    left = round(seconds)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if left >= length:
            parts.append(f"{left // length}{unit}")
            left %= length
    if left or not parts:
        parts.append(f"{left}s")
    return "".join(parts)


# notation in messages ------------------------------------------------------------------------------------------------


def memory_words(mib: float) -> str:
    if mib < GIB:
        return f"{mib:.0f} MiB"
    return f"{mib / GIB:.3g} GiB" if mib < 100 * GIB else f"{mib / GIB:.0f} GiB"


def time_words(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.3g} days"


def hours_words(hours: float, unit: str) -> str:
    """`3.4 core-hours`; short runs in minutes, so that the number is not zero."""
    if hours >= 0.1:
        return f"{hours:.3g} {unit}-hours"
    return f"{hours * 60:.2g} {unit}-minutes" if hours * 60 >= 0.05 else "-"
