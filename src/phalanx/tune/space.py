"""The space of a search: dimensions, points drawn from them, and points as positions in the unit cube.

Standard library only, Python 3.8+.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping, NamedTuple

EMPTY: Mapping[Any, Any] = MappingProxyType({})


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
