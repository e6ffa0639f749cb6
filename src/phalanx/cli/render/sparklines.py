"""A series of numbers as one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """The shape of a series: each character shows the mean of its share. Missing and non-finite values are gaps."""
    count = min(width, len(values))
    bounds = [len(values) * number // count for number in range(count + 1)] if count else []
    shares = [values[begin:end] for begin, end in pairwise(bounds)]
    means = []
    for share in shares:
        finite = [value for value in share if value is not None and math.isfinite(value)]
        means.append(sum(finite) / len(finite) if finite else math.nan)
    known = [mean for mean in means if math.isfinite(mean)]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if math.isnan(mean) else BARS[round((mean - low) * scale)] for mean in means)
