"""The resource use of one replica: all its processes, over all its attempts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from phalanx.ends import Cause
from phalanx.insight.samples import GpuSample, ProcessSamples, UsageInterval

NINETEEN_TWENTIETHS = 0.95
ACTIVE_PERCENT = 5.0  # percent: a GPU was active if it ever reached this,
ACTIVE_MIB = 64.0  # or holds this many MiB: samples are seconds apart, and miss short work


class GpuUsage(NamedTuple):
    """The GPUs of a replica. `active`: how many of them were ever active, or held memory."""

    gpus: int
    active: int
    mean_percent: float
    busiest_percent: float
    memory_mib: float  # maximum of any of them
    total_mib: float  # of the largest
    looks: int  # per sample


class ReplicaUsage(NamedTuple):
    """`seconds` is the longest attempt, `held_s` the sum of all: for so long it held its request."""

    seconds: float
    held_s: float
    cpu_s: float
    cores_mean: float
    cores_p95: float
    memory_mib: float | None  # maximum
    memory_mean_mib: float
    gpu: GpuUsage | None
    causes: tuple[Cause, ...]  # how its processes ended, in the last attempt; nothing of those that run
    message: str  # of the process with the worst end
    attempts: int
    looks: int

    @property
    def is_over(self) -> bool:
        return bool(self.causes)


_BY_SEVERITY = (
    Cause.MEMORY,
    Cause.ERROR,
    Cause.MEETING,
    Cause.STALLED,
    Cause.TIMEOUT,
    Cause.LOST,
    Cause.STOPPED,
    Cause.FINISHED,
)


def use_of(processes: Sequence[Mapping[int, ProcessSamples]]) -> ReplicaUsage | None:
    """The use of one replica's processes, each with its attempts. None without data."""
    numbers = sorted({number for process in processes for number in process})
    if not numbers:
        return None
    attempts = [[process[number] for process in processes if number in process] for number in numbers]
    stretches = [stretch for attempt in attempts for stretch in stacked([one.stretches for one in attempt])]
    held = [max(one.until for one in attempt) - min(one.started_at for one in attempt) for attempt in attempts]
    last = attempts[-1]
    peaks = [[one.memory_mib for one in attempt if one.memory_mib is not None] for attempt in attempts]
    known = [(one, one.cause) for one in last if one.cause is not None]
    causes = tuple(cause for _, cause in known)
    worst = min(known, key=lambda one: _rank(one[1]), default=None)
    seconds, cpu_s = sum(held), sum(one.cpu_s for attempt in attempts for one in attempt)
    return ReplicaUsage(
        seconds=max(held),
        held_s=seconds,
        cpu_s=cpu_s,
        cores_mean=cpu_s / seconds if seconds > 0 else 0.0,
        cores_p95=percentile([(stretch.cores, stretch.seconds) for stretch in stretches]),
        memory_mib=max((sum(peak) for peak in peaks if peak), default=None),
        memory_mean_mib=mean([(stretch.memory_mib, stretch.seconds) for stretch in stretches]),
        gpu=_gpu_use_over([gpu_use(look for one in attempt for look in one.gpus) for attempt in attempts]),
        causes=causes if len(causes) == len(last) else (),
        message=worst[0].message if worst is not None else "",
        attempts=len(numbers),
        looks=sum(len(one.stretches) for one in last),
    )


def _rank(cause: Cause) -> int:
    return _BY_SEVERITY.index(cause) if cause in _BY_SEVERITY else 0


def stacked(lines: Sequence[Sequence[UsageInterval]]) -> list[UsageInterval]:
    """The combined use of several processes, from one change of any to the next."""
    filled = [line for line in lines if line]
    if len(filled) < 2:
        return list(filled[0]) if filled else []
    changes: list[tuple[float, float, float]] = []
    for line in filled:
        for stretch in line:
            changes.append((stretch.since, stretch.cores, stretch.memory_mib))
            changes.append((stretch.until, -stretch.cores, -stretch.memory_mib))
    changes.sort()
    found: list[UsageInterval] = []
    cores = memory_mib = 0.0
    at = changes[0][0]
    for moment, more_cores, more_mib in changes:
        if moment > at:
            found.append(UsageInterval(at, moment, max(0.0, cores), max(0.0, memory_mib)))
            at = moment
        cores, memory_mib = cores + more_cores, memory_mib + more_mib
    return found


def percentile(weighted: Iterable[tuple[float, float]], share: float = NINETEEN_TWENTIETHS) -> float:
    """The weighted quantile: the smallest value that is not exceeded for that share of the weights; 0 without
    values."""
    ordered = sorted((value, weight) for value, weight in weighted if weight > 0)
    wanted = share * math.fsum(weight for _, weight in ordered)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= wanted * (1 - 1e-12):
            return value
    return ordered[-1][0] if ordered else 0.0


def mean(weighted: Sequence[tuple[float, float]]) -> float:
    total = math.fsum(weight for _, weight in weighted)
    return math.fsum(value * weight for value, weight in weighted) / total if total > 0 else 0.0


def gpu_use(looks: Iterable[GpuSample]) -> GpuUsage | None:
    """None without samples."""
    by_gpu: dict[int, list[GpuSample]] = {}
    for look in looks:
        by_gpu.setdefault(look.gpu, []).append(look)
    if not by_gpu:
        return None
    means = [math.fsum(look.percent for look in found) / len(found) for found in by_gpu.values()]
    busiest = [max(look.percent for look in found) for found in by_gpu.values()]
    everything = [look for found in by_gpu.values() for look in found]
    held = [max(look.memory_mib for look in found) for found in by_gpu.values()]
    return GpuUsage(
        gpus=len(by_gpu),
        active=sum(percent >= ACTIVE_PERCENT or mib >= ACTIVE_MIB for percent, mib in zip(busiest, held, strict=True)),
        mean_percent=math.fsum(means) / len(means),
        busiest_percent=max(busiest),
        memory_mib=max(held),
        total_mib=max(look.total_mib for look in everything),
        looks=min(len(found) for found in by_gpu.values()),
    )


def _gpu_use_over(attempts: Sequence[GpuUsage | None]) -> GpuUsage | None:
    """From the attempt with most samples; GPUs count as active if any attempt used them."""
    known = [use for use in attempts if use is not None]
    if not known:
        return None
    return max(known, key=lambda use: use.looks)._replace(
        active=max(use.active for use in known),
        busiest_percent=max(use.busiest_percent for use in known),
        memory_mib=max(use.memory_mib for use in known),
    )
