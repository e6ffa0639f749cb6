"""Random search: points drawn from the distributions, none of them twice."""

from __future__ import annotations

from phalanx.tune.model import Create, Finish
from phalanx.tune.view import SearchView


def next_action(view: SearchView) -> Create | Finish | None:
    wanted = view.size if view.n is None else view.n if view.size is None else min(view.n, view.size)
    if wanted is None:
        return Finish("random search needs `n_experiments`: its matrix has no end", "failed")
    if view.n_created >= wanted + view.n_replaced(wanted):
        return view.finish()
    point = view.new_point()
    if point is None:
        return view.finish()
    return view.create(point, f"random point {view.count_words(wanted)}")
