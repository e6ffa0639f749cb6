"""Groups of real files run the points that Polyaxon would: counts, order of a grid, rungs of hyperband."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest

from phalanx.errors import SpecErrors
from phalanx.spec import Kind, Spec, load
from phalanx.spec.groups import search_settings, suggestion
from phalanx.spec.model import thaw
from phalanx.tune.decision import packages
from phalanx.tune.model import Create, Promote
from phalanx.tune.simulation import Simulation
from tests.corpus.folder import corpus

MOST_POINTS = 3_000  # of a search that is played here
MOST_LOADED = 40  # suggestions of a group that are read


def _groups() -> dict[str, Spec]:
    found = {}
    for path in sorted((corpus() / "files").rglob("*.yml")):
        try:
            spec = load([(path.name, path.read_bytes())])
        except SpecErrors:
            continue
        if spec.kind is Kind.GROUP and spec.search is not None:
            found[str(path.relative_to(corpus() / "files"))] = spec
    return found


GROUPS = _groups()


def _hyperband(max_iter: int, eta: float) -> Counter[tuple[int, int, int]]:
    """How many runs reach each bracket's rung, and their resource: Polyaxon's arithmetic, with exact logarithms."""
    most = next(s for s in itertools.count() if eta ** (s + 1) > max_iter * (1 + 1e-9))
    table: Counter[tuple[int, int, int]] = Counter()
    for bracket in range(most + 1):
        s = most - bracket
        first = math.ceil((most + 1) * eta**s / (s + 1) - 1e-9)
        for rung in range(s + 1):
            count = int(first * eta**-rung + 1e-9)
            if count:
                table[bracket, rung, int(max_iter * eta ** (rung - s) + 1e-9)] = count
    return table


def test_there_are_many_groups() -> None:
    assert len(GROUPS) > 50


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_runs_the_points_that_polyaxon_would(name: str) -> None:
    spec = GROUPS[name]
    search = spec.search
    assert search is not None
    if packages(search.algorithm) or (search.size or 0) > MOST_POINTS or (search.size is None and not search.settings):
        pytest.skip("asks other packages, is too large, or does not say how many")
    settings = search_settings(search, "corpus")._replace(early_stopping=())
    played = Simulation(settings, lambda params, _: float(hash(str(params)) % 1000), search.concurrency).run()
    made = [entry for entry in played.entries if isinstance(entry, Create)]
    if search.algorithm == "grid_search":
        names = [dimension.name for dimension in search.matrix]
        product = itertools.product(*(thaw(dimension.values) for dimension in search.matrix))
        points: list[dict[str, Any]] = [dict(zip(names, point, strict=True)) for point in product]
        assert [entry.params for entry in made] == points[: search.n_experiments]
    elif search.algorithm == "random_search":
        assert len(made) == search.size
    else:
        brackets = {entry.trial: entry.bracket for entry in made}
        table = Counter(
            (brackets[entry.trial], entry.rung, int(entry.resource or 0))
            for entry in played.entries
            if isinstance(entry, Create | Promote)
        )
        space = search.space
        if space is None or space >= max(_hyperband(**_sizes(search.settings)).values()):
            assert table == _hyperband(**_sizes(search.settings))
    for entry in made[:MOST_LOADED]:
        assert suggestion(spec, entry.params).kind is Kind.EXPERIMENT


def _sizes(settings: Any) -> dict[str, Any]:
    return {"max_iter": settings["max_iter"], "eta": settings["eta"]}
