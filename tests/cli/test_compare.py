from __future__ import annotations

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.tracked import remember_tracked


@pytest.fixture(name="two")
def two_fixture(place: Place) -> Place:
    for run_id, rate, last in (("aaa1", 0.1, 0.5), ("bbb2", 0.2, 0.25)):
        lines = {"master-0": {"loss": [(0, 1.0), (1, last)], "same": [(0, 7.0)]}}
        remember_tracked(place, run_id, lines, params={"lr": rate, "depth": 4}, tags=("pair",), name=f"run {run_id}")
    return place


def test_what_differs_stands_first(two: Place) -> None:
    data = two.quick("compare", "aaa1", "bbb2", "--json").data
    assert [run["id"] for run in data["runs"]] == ["aaa1", "bbb2"]
    found = [(row["kind"], row["name"], row["values"], row["differs"]) for row in data["rows"]]
    assert found[:3] == [
        ("param", "lr", [0.1, 0.2], True),
        ("metric", "loss", [0.5, 0.25], True),
        ("min", "loss", [0.5, 0.25], True),
    ]
    assert ("param", "depth", [4, 4], False) in found
    assert not any(differs for *_, differs in found[3:])


def test_the_table_leaves_out_what_is_the_same(two: Place) -> None:
    out = two.call("compare", "aaa1", "bbb2").out
    assert "param lr" in out
    assert "depth" not in out
    assert "2 params and metrics are equal" in out
    assert "depth" in two.quick("compare", "aaa1", "bbb2", "--all").out


def test_a_query_names_runs(two: Place) -> None:
    data = two.quick("compare", "-q", "tags:pair", "-s", "params.lr", "--json").data
    assert [run["id"] for run in data["runs"]] == ["aaa1", "bbb2"]


def test_what_one_lacks_is_a_gap(two: Place) -> None:
    remember_tracked(two, "ccc3", {"master-0": {"other": [(0, 1.0)]}})
    data = two.quick("compare", "aaa1", "ccc3", "--json").data
    assert ["other", [None, 1.0]] in [[row["name"], row["values"]] for row in data["rows"]]


@pytest.mark.parametrize("arguments", [(), ("aaa1",), ("aaa1", "aaa1"), ("-q", "tags:nothing")])
def test_one_run_is_not_enough(two: Place, arguments: tuple[str, ...]) -> None:
    answer = two.call("compare", *arguments)
    assert answer.code == 2
    assert "name at least two runs" in answer.err
