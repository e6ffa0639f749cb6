"""How many examples hypothesis tries of a property.

Few by default, so that `make test` is quick; as many as the test names with PHALANX_EXAMPLES=1, as `make test-full` has
it; PHALANX_EXAMPLES=10 tries ten times as many.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SHARE = float(os.environ.get("PHALANX_EXAMPLES") or 0.15)
USUALLY = 100  # where a test names no number
AT_LEAST = 10


def examples(number: int, *unchecked: HealthCheck) -> settings:
    """A decorator. `unchecked`: complaints of hypothesis that do not apply to this test."""
    return settings(
        max_examples=max(AT_LEAST, round(number * SHARE)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, *unchecked],
    )


def load_default() -> None:
    settings.register_profile("phalanx", examples(USUALLY))
    settings.load_profile("phalanx")
