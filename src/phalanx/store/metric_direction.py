"""Whether lower values of a metric are better, judging by its name. `web/src/compare/fields.ts` has the same rule."""

from __future__ import annotations

import re

from phalanx.deferred_patterns import deferred_pattern

_LOWER = deferred_pattern(
    r"(^|[^a-z])(loss|error|err|perplexity|ppl|mse|mae|rmse|wer|cer|fid|nll|bpc|bpb|cost|regret|seconds|latency|time|took)"
    r"([^a-z]|$)",
    re.IGNORECASE,
)
_HUMP = deferred_pattern(r"([a-z])([A-Z])")


def is_lower_better(metric: str) -> bool:
    return _LOWER.search(_HUMP.sub(r"\1 \2", metric).replace("_", " ")) is not None


def best_of(metric: str) -> str:
    """The column of a metric's summary with its best value: `min` or `max`."""
    return "min" if is_lower_better(metric) else "max"
