"""Searching runs by conditions that are values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from phalanx.store import Store
from phalanx.store.conditions import Comparison, FieldKind, Operator, Ordering, RunField
from tests.store.samples import NOON, run

ID = RunField(FieldKind.COLUMN, "id")
NAME = RunField(FieldKind.COLUMN, "name")
URI = RunField(FieldKind.COLUMN, "id", "at:/", "/files")
STARTED = RunField(FieldKind.TIME, "started_or_created")
FINISHED = RunField(FieldKind.TIME, "finished_at")
LR = RunField(FieldKind.PARAM, "lr")
LOSS = RunField(FieldKind.METRIC, "loss")
TEAM = RunField(FieldKind.LABEL, "team")
EVERY_RUN = ["a", "b", "c"]


@pytest.fixture(scope="class")
def three_runs(class_store: Store) -> Store:
    class_store.add(run("a", name="One", params={"lr": "0.1"}, summary={"loss": 3.0}, created_at=NOON))
    class_store.add(run("b", name="one", params={"lr": "0.2"}, created_at=NOON + timedelta(milliseconds=5)))
    class_store.add(run("c", name=None, summary={"loss": 1.0}, created_at=NOON + timedelta(milliseconds=7)))
    class_store.put_labels("b", {"team": "100%"})
    return class_store


class TestSearch:
    @pytest.mark.parametrize(
        ("field", "operator", "value", "expected"),
        [
            (ID, "=", "b", ["b"]),
            (ID, "IN", ["a", "c"], ["a", "c"]),
            (ID, "IN", [], []),
            (ID, "NOT IN", [], EVERY_RUN),
            (NAME, "LIKE", "o%", ["b"]),
            (NAME, "ILIKE", "O_E", ["a", "b"]),
            (NAME, "IS NULL", None, ["c"]),
            (NAME, "IS NOT NULL", None, ["a", "b"]),
            (URI, "=", "at:/b/files", ["b"]),
            (URI, "ILIKE", "AT:/_/files", EVERY_RUN),
            (URI, "NOT IN", ["at:/a/files", "b"], ["b", "c"]),
            (STARTED, ">=", NOON.timestamp() * 1000 + 5, ["b", "c"]),
            (FINISHED, ">", 0, []),
            (LR, "!=", "0.1", ["b"]),
            (LR, "IS NULL", None, ["c"]),
            (TEAM, "IS NOT NULL", None, ["b"]),
            (TEAM, "LIKE", "100\\%", []),
            (LOSS, "<", 2, ["c"]),
        ],
    )
    def test_a_comparison(
        self, three_runs: Store, field: RunField, operator: str, value: object, expected: list[str]
    ) -> None:
        comparison = Comparison(field, Operator(operator), value)
        assert [one.id for one in three_runs.search([comparison], [Ordering(ID)], limit=10)] == expected

    @pytest.mark.parametrize(
        ("orderings", "expected"),
        [
            ([], ["a", "b", "c"]),
            ([Ordering(STARTED, descending=True)], ["c", "b", "a"]),
            ([Ordering(NAME)], ["a", "b", "c"]),
            ([Ordering(NAME, descending=True)], ["b", "a", "c"]),
            ([Ordering(LOSS)], ["c", "a", "b"]),
            ([Ordering(LOSS, descending=True)], ["a", "c", "b"]),
            ([Ordering(TEAM), Ordering(LR, descending=True)], ["b", "a", "c"]),
            ([Ordering(URI, descending=True)], ["c", "b", "a"]),
        ],
    )
    def test_an_order(self, three_runs: Store, orderings: list[Ordering], expected: list[str]) -> None:
        assert [one.id for one in three_runs.search([], orderings, limit=10)] == expected
        pages = [three_runs.search([], orderings, limit=1, offset=place) for place in range(4)]
        assert [[one.id for one in page] for page in pages] == [*([name] for name in expected), []]

    def test_all_comparisons_must_hold(self, three_runs: Store) -> None:
        both = [Comparison(LR, Operator.IS_NOT_NULL), Comparison(LOSS, Operator.GREATER, 0)]
        assert [one.id for one in three_runs.search(both, [], limit=10)] == ["a"]
