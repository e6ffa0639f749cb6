"""Trials with different allocations, and the smallest that is nearly as fast as the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from phalanx.insight.advice import FEW_LOOKS, IDLE_PERCENT
from phalanx.insight.amounts import memory_text
from phalanx.insight.throughput import Speeds
from phalanx.insight.usage import GpuUsage

MOST_TRIALS = 32
RESOURCES = ("gpu", "cpu", "memory", "workers")
OTHERS_CORES = 0.25  # cores that other work may use without disturbing a trial
LOOSE_CORES = 0.25  # cores used beyond the request: then the trial is no evidence for its request
PAYS = 1.5  # speed-up over CPU alone that justifies a GPU

Choice = Mapping[str, float]


class Cost(NamedTuple):
    """The total request of a trial, most expensive resource first: this order defines which trial is smaller."""

    gpus: float
    cpus: float
    memory_mib: float


class Trial(NamedTuple):
    """One finished trial. `state`: `measured`, `failed`, `memory` (killed for it), `interrupted`."""

    choice: Choice
    cost: Cost
    run_id: str
    state: str
    reason: str
    seconds: float
    cpu_s: float = 0.0
    speeds: Speeds | None = None
    cores_p95: float | None = None  # of all replicas together
    memory_mib: float | None = None  # of the largest replica
    gpu: GpuUsage | None = None
    others_cores: float | None = None  # cores used by other work meanwhile; None: unknown

    @property
    def is_loose(self) -> bool:
        """It used more cores than requested: the limit was not enforced."""
        if "cpu" not in self.choice or self.cores_p95 is None:
            return False
        return self.cores_p95 > self.cost.cpus * 1.1 + LOOSE_CORES

    @property
    def is_disturbed(self) -> bool:
        return self.others_cores is not None and self.others_cores > OTHERS_CORES

    @property
    def has_idle_gpu(self) -> bool:
        """GPUs were idle in its second half, with enough samples to be sure."""
        if not self.cost.gpus or self.gpu is None or self.gpu.looks < FEW_LOOKS:
            return False
        return self.gpu.mean_percent < IDLE_PERCENT


class SizingVerdict(NamedTuple):
    """Indexes into the list of trials. `best` is the fastest, `larger` the next more expensive than the `chosen` one,
    `smaller` the next cheaper."""

    chosen: int
    best: int
    larger: int | None
    smaller: int | None


def combinations(tries: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination of values, smallest first."""
    names = list(tries)
    rows = product(*(sorted(set(tries[name])) for name in names))
    return [dict(zip(names, row, strict=True)) for row in rows]


def label(choice: Choice) -> str:
    """`cpu=2 memory=1Gi`."""
    return " ".join(f"{name}={value_text(name, value)}" for name, value in choice.items())


def value_text(name: str, value: float) -> str:
    return memory_text(value) if name == "memory" else f"{value:g}"


def recommend(trials: Sequence[Trial], speeds: Sequence[float | None], within: float) -> SizingVerdict | None:
    """The cheapest trial whose speed is at least that share of the best one's. Trials that exceeded their request are
    no evidence. A trial with GPUs must be half as fast again as the best without: a GPU should be well used, and one
    trial each is a rough measure. None when no trial is evidence."""
    measured = {
        place: speed
        for place, (trial, speed) in enumerate(zip(trials, speeds, strict=True))
        if speed is not None and speed > 0 and math.isfinite(speed) and trial.state == "measured" and not trial.is_loose
    }
    if not measured:
        return None
    best = max(measured, key=lambda place: (measured[place], [-part for part in trials[place].cost]))
    enough = [place for place in measured if measured[place] >= within * measured[best]]
    without = [place for place in measured if not trials[place].cost.gpus]
    if without and len(without) < len(measured):
        fair = max(without, key=lambda place: measured[place])
        if measured[best] < PAYS * measured[fair]:
            enough = [place for place in without if measured[place] >= within * measured[fair]]
    chosen = min(enough, key=lambda place: (trials[place].cost, -measured[place]))
    dearer = [place for place in measured if trials[place].cost > trials[chosen].cost]
    cheaper = [place for place in measured if trials[place].cost < trials[chosen].cost]
    return SizingVerdict(
        chosen=chosen,
        best=best,
        larger=min(dearer, key=lambda place: trials[place].cost, default=None),
        smaller=max(cheaper, key=lambda place: trials[place].cost, default=None),
    )
