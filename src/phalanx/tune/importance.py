"""How much each parameter decided whether a trial was among the best: PED-ANOVA.

For each parameter, the distribution of its values among the best trials is compared with that among all trials
(Watanabe, Bansal and Hutter 2023, https://arxiv.org/abs/2304.10255). Values are counted on a grid and smoothed with
Scott's rule, as in Optuna. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from phalanx.tune.space import Axis, Dimension, size

QUANTILE = 0.1  # the share of the best trials
_STEPS = 50  # of the grid of a continuous parameter
_LEAST_SIGMA = 0.5 / 1.64  # 90 % of a kernel lie within its cell
_TINY = 1e-12


class Importance(NamedTuple):
    """`shares`: of each parameter, in total 1; empty if too few trials differ. `trials`: with a finite value. `best`:
    of these, how many are among the best."""

    shares: Mapping[str, float]
    trials: int
    best: int


def importance(
    dimensions: Sequence[Dimension], results: Sequence[tuple[Mapping[str, Any], float]], maximize: bool
) -> Importance:
    """`results`: the params and the value of each trial."""
    found = [(params, -value if maximize else value) for params, value in results if math.isfinite(value)]
    if len(found) < 2:
        return Importance({}, len(found), 0)
    limit = sorted(loss for _, loss in found)[math.ceil(QUANTILE * len(found)) - 1]
    best = [params for params, loss in found if loss <= limit]
    if len(best) == len(found):
        return Importance({}, len(found), len(best))
    every = [params for params, _ in found]
    apart = {one.name: _divergence(_Grid(one), best, every) for one in dimensions}
    total = sum(apart.values())
    shares = {name: value / total for name, value in apart.items()} if total > 0 else {}
    return Importance(shares, len(found), len(best))


class _Grid:
    """The cells that the values of a parameter are counted in."""

    def __init__(self, dimension: Dimension) -> None:
        self.name = dimension.name
        self.axis = Axis(dimension)
        self.is_category = self.axis.is_category
        listed = size([dimension])
        self.length = _STEPS if listed is None else max(1, listed if self.is_category else min(listed, _STEPS))
        self.is_listed = listed is not None and listed <= self.length

    def cell(self, value: Any) -> int:
        position = self.axis.position(value)
        if self.is_listed:  # a position is the middle of its cell
            return min(int(position * self.length), self.length - 1)
        return min(max(math.ceil(position * (self.length - 1) - 0.5), 0), self.length - 1)

    def counts(self, points: Sequence[Mapping[str, Any]]) -> list[int]:
        found = [0] * self.length
        for params in points:
            if self.name in params:
                found[self.cell(params[self.name])] += 1
        return found


def _divergence(grid: _Grid, best: Sequence[Mapping[str, Any]], every: Sequence[Mapping[str, Any]]) -> float:
    """Pearson's divergence of the density of the best trials from that of all."""
    if grid.length < 2:
        return 0.0
    smooth = _categories if grid.is_category else _kernels
    top, whole = smooth(grid.counts(best)), smooth(grid.counts(every))
    return sum(of_all * (of_best / of_all - 1) ** 2 for of_best, of_all in zip(top, whole))


def _categories(counts: list[int]) -> list[float]:
    """Each seen category is a kernel with a small share of all the others; one more kernel is uniform."""
    seen = [(place, count) for place, count in enumerate(counts) if count]
    prior = 1 / (len(seen) + 1)
    row = 1 + prior * len(counts)
    total = sum(counts) + 1
    found = [(sum(counts) * prior / row + 1 / len(counts)) / total] * len(counts)
    for place, count in seen:
        found[place] += count / row / total
    return [share + _TINY for share in found]


def _kernels(counts: list[int]) -> list[float]:
    """A normal distribution around each seen cell, and a wide one in the middle, all cut at the ends of the grid."""
    length, total = len(counts), sum(counts)
    seen = [(place, count) for place, count in enumerate(counts) if count]
    sigma = _bandwidth(seen, total)
    kernels = [(float(place), sigma, count) for place, count in seen]
    kernels.append(((length - 1) / 2, float(length), 1))
    found = [_TINY] * length
    for centre, width, weight in kernels:
        edges = [_below((edge - 0.5 - centre) / width) for edge in range(length + 1)]
        share = weight / (total + 1) / (edges[-1] - edges[0])
        for place in range(length):
            found[place] += share * (edges[place + 1] - edges[place])
    return found


def _bandwidth(seen: Sequence[tuple[int, int]], total: int) -> float:
    """Scott's rule."""
    if not total:
        return _LEAST_SIGMA
    mean = sum(place * count for place, count in seen) / total
    deviation = math.sqrt(sum((place - mean) ** 2 * count for place, count in seen) / max(1, total - 1))
    ranks, so_far = [], 0
    for _, count in seen:
        so_far += count
        ranks.append(so_far)
    first = next(index for index, rank in enumerate(ranks) if rank >= total // 4)
    third = next((index for index, rank in enumerate(ranks) if rank > total * 3 // 4), len(seen) - 1)
    between = seen[third][0] - seen[first][0]
    return max(1.059 * min(between / 1.34, deviation) / math.pow(total, 0.2), _LEAST_SIGMA)


def _below(z: float) -> float:
    """The share of a normal distribution below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
