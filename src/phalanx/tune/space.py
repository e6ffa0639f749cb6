"""The space of a search: dimensions, points drawn from them, and points as positions in the unit cube.

Every random number comes from a hash of the seed, the dimension and the trial, so a point depends neither on the
order of decisions nor on the version of Python. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import math
from bisect import bisect
from collections.abc import Collection, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple, Sequence

EMPTY: Mapping[Any, Any] = MappingProxyType({})
_TRIES = 100  # draws that may be known points before the next unknown one is looked up
_MOST_STEPS = 1e15  # multiples of `q` up to here are exact; the rest of a distribution is taken as continuous
_TAIL = 1e-9  # a normal distribution is cut here: positions 0 and 1 are infinite


class Dimension(NamedTuple):
    """One entry of a matrix: a finite list of values, or a distribution."""

    name: str
    kind: str
    values: tuple[Any, ...] | None = None
    weights: tuple[float, ...] | None = None
    arguments: Mapping[str, float] = EMPTY

    @property
    def is_distribution(self) -> bool:
        return self.values is None or self.weights is not None


Dimensions = Sequence[Dimension]


def size(dimensions: Dimensions) -> int | None:
    """Number of different points; None when there is no end of them."""
    total = 1
    for dimension in dimensions:
        listed = _listed(dimension)
        if listed is None:
            return None
        total *= len(listed)
    return total


def _listed(dimension: Dimension) -> Sequence[Any] | None:
    """The different values that can be drawn (for steps of a distribution, their numbers); None for infinitely many."""
    if dimension.values is None:
        if dimension.kind not in ("quniform", "qloguniform") or dimension.arguments["q"] <= 0:
            return None
        low, high = _ends(dimension)
        step = dimension.arguments["q"]
        if high / step > _MOST_STEPS:
            return None
        first = math.floor(low / step)
        return range(first, max(math.ceil(high / step), first + 1))
    values = dimension.values
    if dimension.weights is not None:
        # What the probabilities leave over goes to the last value
        chances = [*dimension.weights[:-1], 1 - sum(dimension.weights[:-1])]
        values = tuple(value for value, share in zip(values, chances) if share > 1e-12)
    return list({_text(value): value for value in reversed(values)}.values())[::-1]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def point_key(params: Mapping[str, Any], names: Collection[str]) -> str:
    """A text that two equal points share. `names`: the dimensions; a resource is no part of a point."""
    return _text([params.get(name) for name in names])


def point_at(dimensions: Dimensions, index: int) -> dict[str, Any]:
    """The point of a grid with this number: in file order, the last dimension varies fastest."""
    point: dict[str, Any] = {}
    for dimension in reversed(dimensions):
        assert dimension.values is not None
        index, place = divmod(index, len(dimension.values))
        point[dimension.name] = dimension.values[place]
    return {dimension.name: point[dimension.name] for dimension in dimensions}


def chance(*about: Any) -> float:
    """A number from 0 to below 1 that is random in what it is about."""
    return (int.from_bytes(_digest(about)[:8], "big") >> 11) / (1 << 53)


def seed_number(*about: Any) -> int:
    """A seed for other generators, of 32 bits."""
    return int.from_bytes(_digest(about)[:4], "big")


def _digest(about: tuple[Any, ...]) -> bytes:
    from hashlib import sha256  # slow to import, and most files have no search

    return sha256("\0".join(map(str, about)).encode()).digest()


def draw(dimensions: Dimensions, seed: int | str, number: int, attempt: int = 0) -> dict[str, Any]:
    """A random point."""
    about = (number,) if attempt == 0 else (number, attempt)
    return {dimension.name: value_at(dimension, chance(seed, dimension.name, *about)) for dimension in dimensions}


def draw_new(dimensions: Dimensions, seed: int | str, number: int, known: Collection[str]) -> dict[str, Any] | None:
    """A random point that is not known yet; None when none is left."""
    names = [dimension.name for dimension in dimensions]
    for attempt in range(_TRIES):
        point = draw(dimensions, seed, number, attempt)
        if point_key(point, names) not in known:
            return point
    total = size(dimensions)
    if total is None:
        return None  # a distribution of few steps, all of which are known
    listed = [_listed(dimension) or () for dimension in dimensions]
    start = int(chance(seed, number, "place") * total)
    for index in range(min(total, len(known) + 1)):
        point = _cell(dimensions, listed, (start + index) % total)
        if point_key(point, names) not in known:
            return point
    return None


def _cell(dimensions: Dimensions, listed: Sequence[Sequence[Any]], index: int) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for dimension, values in zip(reversed(dimensions), reversed(listed)):
        index, place = divmod(index, len(values))
        value = values[place]
        point[dimension.name] = value * dimension.arguments["q"] if dimension.values is None else value
    return {dimension.name: point[dimension.name] for dimension in dimensions}


def value_at(dimension: Dimension, position: float) -> Any:
    """The value at a position from 0 to 1, distributed as the dimension when the position is uniform."""
    if dimension.values is not None:
        if dimension.weights is None:
            return dimension.values[min(int(position * len(dimension.values)), len(dimension.values) - 1)]
        shares = list(accumulate(dimension.weights))
        return dimension.values[min(bisect(shares, position), len(shares) - 1)]
    return _rounded(dimension, _quantile(dimension, position))


def _rounded(dimension: Dimension, value: float) -> float:
    """Rounded down to a multiple of `q`, as Polyaxon does."""
    step = dimension.arguments.get("q", 0)
    return math.floor(value / step) * step if step > 0 and abs(value / step) < _MOST_STEPS else value


def _ends(dimension: Dimension) -> tuple[float, float]:
    low, high = dimension.arguments["low"], dimension.arguments["high"]
    return (math.exp(low), math.exp(high)) if "log" in dimension.kind else (low, high)


def _quantile(dimension: Dimension, position: float) -> float:
    if "uniform" in dimension.kind:
        low, high = dimension.arguments["low"], dimension.arguments["high"]
        value = low + position * (high - low)
    else:
        from statistics import NormalDist

        loc, scale = dimension.arguments["loc"], dimension.arguments["scale"]
        value = loc
        if scale > 0:
            value = NormalDist(loc, scale).inv_cdf(min(max(position, _TAIL), 1 - _TAIL))
    return math.exp(min(value, 700.0)) if "log" in dimension.kind else value


def typical(dimension: Dimension) -> Any:
    """A value to check a file with: the first one, the low end, or the centre."""
    if dimension.values:
        return dimension.values[0]
    value = next(iter(dimension.arguments.values()))
    if "log" in dimension.kind:
        value = math.exp(value)
    return _rounded(dimension, value)


class Axis:
    """A dimension as a model sees it. `order`: its values, lowest first (None for a distribution); `is_category`: they
    have no order."""

    def __init__(self, dimension: Dimension) -> None:
        self.dimension = dimension
        self.order: list[Any] | None = None
        self.is_category = False
        if dimension.values is not None:
            values = list(_listed(dimension) or ())
            self.is_category = not all(map(_is_number, values))
            self.order = values if self.is_category else sorted(values)
            self._places = {_text(value): place for place, value in enumerate(self.order)}

    def position(self, value: Any) -> float:
        """Where a value is, from 0 to 1: on a logarithmic axis for log forms, by rank for listed values."""
        if self.order is not None:
            return (self.place(value) + 0.5) / len(self.order)
        arguments = self.dimension.arguments
        number = float(value) + arguments.get("q", 0) / 2  # the middle of what is rounded down to it
        if "log" in self.dimension.kind:
            number = math.log(max(number, 1e-300))
        if "uniform" in self.dimension.kind:
            found = (number - arguments["low"]) / (arguments["high"] - arguments["low"])
        elif arguments["scale"] <= 0:
            found = 0.5
        else:
            from statistics import NormalDist

            found = NormalDist(arguments["loc"], arguments["scale"]).cdf(number)
        return min(max(found, 0.0), 1.0)

    def place(self, value: Any) -> int:
        """The index of a listed value, or of its neighbour if a user chose another one."""
        assert self.order is not None
        place = self._places.get(_text(value))
        if place is None:
            place = bisect(self.order, value) if _is_number(value) and not self.is_category else 0
        return min(place, len(self.order) - 1)

    def value(self, position: float) -> Any:
        """The value at a position."""
        if self.order is None:
            return value_at(self.dimension, min(max(position, 0.0), 1.0))
        return self.order[min(max(int(position * len(self.order)), 0), len(self.order) - 1)]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
