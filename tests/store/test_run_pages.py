"""Pages from the beginning of an index are the same as those of a whole sort."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from phalanx.store import Store, run_pages
from tests.store.samples import NOON, run

COUNT = 60
QUERIES = [
    "",
    "status:succeeded",
    "metric.loss:<3",
    "metric.loss:<3|>5",
    "metric.loss:~<3",
    "metric.none:nil",
    "params.lr:>2, tags:even",
    "params.lr:x",
    "tags:%e%",
    "tags:nil",
    "min.loss:<2, metric.loss:>=0, tags:even|odd",
    "name:run-7, metric.loss:<9",
    "metric.loss:nan",
]
SORTS = ["-created_at", "updated_at", "metric.loss", "-metric.loss", "best.loss", "-params.lr", "params.lr", "name"]


@pytest.fixture
def many(store: Store) -> Store:
    """Runs with equal values, without values, and with NaN."""
    with store.transaction():
        for number in range(COUNT):
            values = {"loss": float("nan") if number % 11 == 5 else float(number % 7)} if number % 5 else {}
            params = {"lr": "x" if number % 13 == 4 else number % 4} if number % 3 else {}
            store.add(
                run(
                    f"r{number}",
                    name=f"run-{number}",
                    project=f"p{number % 2}",
                    status="succeeded" if number % 4 else "failed",
                    created_at=NOON + timedelta(seconds=number // 2),
                    updated_at=NOON - timedelta(seconds=number),
                    tags=(["even", "odd"][number % 2],) if number % 6 else (),
                    params=params,
                    summary=values,
                )
            )
    return store


@pytest.mark.parametrize("project", [None, "p1", ["p0", "p1"]])
def test_a_page_is_the_same_part_of_the_list_however_it_is_read(
    many: Store, monkeypatch: pytest.MonkeyPatch, project: str | list[str] | None
) -> None:
    for query, sort in product(QUERIES, SORTS):
        monkeypatch.setattr(run_pages, "HEADS", (0,))
        monkeypatch.setattr(run_pages, "MOST_COLLECTED", 0)
        whole = many.keys(query, sort, project=project)
        assert many.count(query, project=project) == len(whole)
        monkeypatch.setattr(run_pages, "MOST_COLLECTED", 10_000)
        assert many.keys(query, sort, project=project) == whole, (query, sort)
        assert many.count(query, project=project) == len(whole)
        monkeypatch.setattr(run_pages, "HEADS", (8, 30))
        for offset in (0, 3, 20):
            assert many.keys(query, sort, 4, offset, project) == whole[offset : offset + 4], (query, sort, offset)


def test_archived_runs_are_counted_apart(many: Store) -> None:
    before = many.count("metric.loss:<3")
    for number in (1, 2, 5, 6):
        many.update(f"r{number}", archived=True)
    hidden = many.count_archived("metric.loss:<3")
    assert hidden == 2  # r5 has no metric, r6 another value
    assert many.count("metric.loss:<3", unarchived=True) == before - hidden
    assert len(many.keys("metric.loss:<3", unarchived=True)) == before - hidden
