"""The metrics that a run's replicas kept, as they stand in its folder."""

from __future__ import annotations

import math
from pathlib import Path

from phalanx.scheduler.home import RunFolder
from phalanx.spool import Reader

Series = dict[str, list[float]]


def series_of(attempt: Path) -> Series:
    """Every metric of one replica's attempt, in the order in which it was logged."""
    found: Series = {}
    for record in Reader(attempt / "metrics").poll():
        try:
            values = record.data()["metrics"].items()
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        for name, value in values:
            found.setdefault(str(name), []).append(float(value))
    return found


def first_series(folder: RunFolder, attempt: int) -> Series:
    """Each metric of the first replica that logged it: usually the master's."""
    found: Series = {}
    order = sorted(folder.replica_folders(attempt), key=lambda row: (not row[0].startswith("master"), row[0]))
    for _, path in order:
        for name, values in series_of(path).items():
            found.setdefault(name, values)
    return found


def last_values(folder: RunFolder, attempt: int) -> dict[str, float]:
    """What lists show and queries find: the last value of each metric."""
    return {name: values[-1] for name, values in first_series(folder, attempt).items() if math.isfinite(values[-1])}
