"""One metric over all replicas: mean, minimum and maximum at each step. Ranks that log more often do not weigh more."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from phalanx.store.series.leaves import Bucket, mean
from phalanx.store.series.points import Columns


class Spread(NamedTuple):
    """What the replicas logged at a step, or between two. The mean is the mean of the replicas' means."""

    first_step: int
    last_step: int
    first_time: float
    last_time: float
    count: int  # type: ignore[assignment] # the usual word, though tuples have a method of that name
    min: float | None
    max: float | None
    mean: float | None
    odd: int  # number of NaN or infinite values
    ranks: int  # number of replicas with a finite value here that have come as far as its last step


def per_step(lines: Iterable[Columns]) -> list[Spread]:
    """For each step; a replica's value at a step is the last one it logged there."""
    found: dict[int, list[tuple[float, float]]] = {}
    for line in lines:
        latest = dict(zip(line.steps, zip(line.times, line.values, strict=True), strict=True))
        for step, point in latest.items():
            found.setdefault(step, []).append(point)
    return [_at_step(step, found[step]) for step in sorted(found)]


def _at_step(step: int, points: Sequence[tuple[float, float]]) -> Spread:
    times = [time for time, _ in points]
    values = [value for _, value in points if isfinite(value)]
    low, high = (min(values), max(values)) if values else (None, None)
    middle = None if low is None or high is None else mean(sum(values), len(values), low, high)
    odd = len(points) - len(values)
    return Spread(step, step, min(times), max(times), len(points), low, high, middle, odd, len(values))


def side_by_side(lines: Sequence[Sequence[Bucket]]) -> list[Spread] | None:
    """For each bucket, if all replicas logged at the same steps, as most do; otherwise None."""
    steps = [bucket.first_step for bucket in lines[0]] if lines else []
    is_ordered = all(one.last_step < other.first_step for one, other in pairwise(lines[0] if lines else ()))
    if not is_ordered or any([bucket[0] for bucket in line] != steps for line in lines):
        return None
    return [_in_cell([(bucket,) for bucket in cell]) for cell in zip(*lines, strict=True)]


def on_grid(lines: Sequence[Sequence[Bucket]], count: int) -> list[Spread]:
    """For each of this many equal ranges of steps that contain points. A bucket counts where it starts. A replica none
    of whose buckets starts in a range, but one of which reaches into it, counts there with the mean of that bucket:
    otherwise the mean over the replicas would jump where buckets are as wide as ranges."""
    buckets = [bucket for line in lines for bucket in line]
    if not buckets:
        return []
    low = min(bucket.first_step for bucket in buckets)
    span = max(bucket.first_step for bucket in buckets) - low + 1
    cells: dict[int, list[list[Bucket]]] = {}
    reaching: dict[int, list[Bucket]] = {}
    for line in lines:
        own: dict[int, list[Bucket]] = {}
        through: dict[int, Bucket] = {}
        for bucket in line:
            first = (bucket.first_step - low) * count // span
            own.setdefault(first, []).append(bucket)
            for cell in range(first + 1, min((bucket.last_step - low) * count // span, count - 1) + 1):
                through[cell] = bucket
        for cell, held in own.items():
            cells.setdefault(cell, []).append(held)
        for cell in through.keys() - own.keys():
            reaching.setdefault(cell, []).append(through[cell])
    return [_in_cell(cells[cell], reaching.get(cell, ())) for cell in sorted(cells)]


def reached(spreads: Iterable[Spread], ends: Iterable[int]) -> list[Spread]:
    """With `ranks` as the number of replicas that have come as far as the end of each range; `ends` are the steps up to
    which each has logged. While a run is active some are ahead, and what is averaged there lacks the others."""
    left = sorted(ends)
    found = []
    for spread in spreads:
        ranks = len(left) - bisect_left(left, spread.last_step)
        found.append(spread if ranks >= spread.ranks else spread._replace(ranks=ranks))
    return found


def _in_cell(replicas: Sequence[Sequence[Bucket]], reaching: Sequence[Bucket] = ()) -> Spread:
    """Column by column: many ranks have hundreds of thousands of buckets. Of `reaching` ones only the mean counts."""
    is_plain = all(len(held) == 1 for held in replicas)
    buckets = [held[0] for held in replicas] if is_plain else [bucket for held in replicas for bucket in held]
    first_steps, last_steps, first_times, last_times, counts, lows, highs, means, _, odds = zip(*buckets, strict=True)
    middles = _known(means if is_plain else [_mean_of(held) for held in replicas])
    if reaching:
        middles = [*middles, *_known([bucket.mean for bucket in reaching])]
    return Spread(
        min(first_steps),
        max(last_steps),
        min(first_times),
        max(last_times),
        sum(counts),
        min(_known(lows), default=None),
        max(_known(highs), default=None),
        mean(sum(middles), len(middles), min(middles), max(middles)) if middles else None,
        sum(odds),
        len(middles),
    )


def _known(values: Sequence[float | None]) -> Sequence[float]:
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def _mean_of(buckets: Sequence[Bucket]) -> float | None:
    """Of one replica."""
    if len(buckets) == 1:
        return buckets[0].mean
    known = [(bucket.mean, bucket.count - bucket.odd) for bucket in buckets if bucket.mean is not None]
    if not known:
        return None
    middles = [middle for middle, _ in known]
    weighted = sum(middle * weight for middle, weight in known)
    return mean(weighted, sum(weight for _, weight in known), min(middles), max(middles))
