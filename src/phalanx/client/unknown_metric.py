"""The error for a metric that a run does not have."""

from __future__ import annotations

from collections.abc import Iterable


def unknown_metric(run_id: str, metric: str, known: Iterable[str], replica: str | None = None) -> KeyError:
    from phalanx.spec.suggestions import did_you_mean

    names = list(known)
    if metric in names:
        return KeyError(f"replica {replica} of run {run_id} has not logged the metric {metric!r}")
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    hint = did_you_mean(metric, names) or (f"its metrics are {shown}" if names else "it has no metrics yet")
    return KeyError(f"run {run_id} has no metric {metric!r}: {hint}")
