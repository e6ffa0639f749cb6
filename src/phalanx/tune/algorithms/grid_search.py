"""Grid search: the product of all values in file order, the last dimension fastest; the first `n` of them.

A failed point stays failed: another point does not stand for it. An invalid one is replaced by the next of the grid.
"""

from __future__ import annotations

from phalanx.tune.model import Create, Finish
from phalanx.tune.space import point_at
from phalanx.tune.view import SearchView


def next_action(view: SearchView) -> Create | Finish | None:
    total = 1
    for dimension in view.settings.dimensions:
        assert dimension.values is not None, f"`{dimension.name}` is a distribution, which a grid cannot enumerate"
        total *= len(dimension.values)
    index = sum(view.history.own.values())
    if index >= total or (view.n is not None and view.n_created >= view.n):
        return view.finish()
    return view.create(point_at(view.settings.dimensions, index), f"point {index + 1} of a grid of {total}")
